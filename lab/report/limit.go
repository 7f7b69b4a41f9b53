package report

import (
	"slices"
	"strings"

	"plait.dev/plait/lab/result"
)

// limit is what a bound demands of one metric of one variant at one point: the mark drawn into a bar.
type limit struct {
	// op puts the measured value on its left, e.g. ">=".
	op    string
	value float64
	ok    bool
}

var mirrored = map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}

// limits returns the bounds that compare exactly this metric, and nothing computed from it, with a number.
func (s source) limits(point int, variant, owner, metric string) []limit {
	var found []limit
	for _, b := range s.file.Bounds {
		if at, ok := s.table.Find(b.Params); b.Invalid != "" || !ok || at != point {
			continue
		}
		left, right, ok := strings.Cut(b.Expression, b.Operator)
		switch {
		case !ok || s.alone(left) && s.alone(right): // both are drawn anyway
		case s.isMetric(left, variant, owner, metric):
			found = append(found, limit{b.Operator, b.Right, b.OK})
		case s.isMetric(right, variant, owner, metric):
			found = append(found, limit{mirrored[b.Operator], b.Left, b.OK})
		}
	}
	return found
}

// alone reports whether an expression is some variant's metric and nothing else.
func (s source) alone(expression string) bool {
	expression = strings.TrimSpace(expression)
	variant, _, _ := strings.Cut(expression, ".")
	return slices.Contains(s.table.Variants, variant) && !strings.ContainsAny(expression, " *+/()")
}

// published returns the paper's number for a metric.
func (s source) published(point int, variant, owner, metric string) (result.Published, bool) {
	for _, p := range s.file.Paper {
		if at, ok := s.table.Find(p.Params); ok && at == point && s.isMetric(p.Metric, variant, owner, metric) {
			return p, true
		}
	}
	return result.Published{}, false
}

// onlyVariant is the name of the one that a file without variants has.
const onlyVariant = "run"

// isMetric reports whether an expression is just this metric, as variant.metric or variant.owner.metric, or owner.metric in a file without variants.
// variant.metric is that of the variant's only application, not of another owner that has one of the same name.
func (s source) isMetric(expression, variant, owner, metric string) bool {
	expression = strings.TrimSpace(expression)
	return expression == variant+"."+metric && s.isApplication(owner) || expression == variant+"."+owner+"."+metric || variant == onlyVariant && expression == owner+"."+metric
}

// isApplication reports whether the owner of a metric is none of the others: a node, a link, a connection of an application, or fairness.
func (s source) isApplication(owner string) bool {
	t := s.file.Experiment.Topology
	return !strings.Contains(owner, "/") && owner != "fairness" &&
		!slices.ContainsFunc(t.Nodes, func(n result.Node) bool { return n.Name == owner }) &&
		!slices.ContainsFunc(t.Links, func(l result.Link) bool { return l.Name == owner })
}

// sign writes an operator the way people do.
func sign(op string) string {
	switch op {
	case ">=":
		return "≥"
	case "<=":
		return "≤"
	case "==":
		return "="
	case "!=":
		return "≠"
	}
	return op
}
