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
		case isMetric(left, variant, owner, metric):
			found = append(found, limit{b.Operator, b.Right, b.OK})
		case isMetric(right, variant, owner, metric):
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
		if at, ok := s.table.Find(p.Params); ok && at == point && isMetric(p.Metric, variant, owner, metric) {
			return p, true
		}
	}
	return result.Published{}, false
}

// onlyVariant is the name of the one that a file without variants has.
const onlyVariant = "run"

// isMetric reports whether an expression is just this metric, as variant.metric or variant.owner.metric, or owner.metric in a file without variants.
func isMetric(expression, variant, owner, metric string) bool {
	expression = strings.TrimSpace(expression)
	return expression == variant+"."+metric || expression == variant+"."+owner+"."+metric || variant == onlyVariant && expression == owner+"."+metric
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
