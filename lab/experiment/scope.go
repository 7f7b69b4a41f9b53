package experiment

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// measured gives the value of a metric at one point: a number or, for the goodput in every second, a list of them.
type measured func(variant, subject, metric string) any

// everySecond is the name that the goodput of an application in every second of the timeline has in expressions.
const everySecond = "second_mbps"

// differs stands for a parameter that is not the same in all variants an expression is about: any one of its values could be the
// wrong one.
type differs struct{}

// paramScope is what conditions see at a point: the parameters, and the links' parameters as link.parameter,
// link.forward.parameter and link.backward.parameter, of the named variants or, if none is named, of all.
func (p point) paramScope(named []string) map[string]any {
	cells := slices.DeleteFunc(slices.Clone(p.cells), func(c Cell) bool { return len(named) > 0 && !slices.Contains(named, c.Variant) })
	if len(cells) == 0 {
		cells = p.cells // a name of none that is here is told elsewhere
	}
	scope := cells[0].paramScope()
	for _, c := range cells[1:] {
		scope = agreed(scope, c.paramScope())
	}
	return scope
}

func (c Cell) paramScope() map[string]any {
	scope := maps.Clone(c.Params)
	for name, link := range c.Spec.Links {
		if len(link.Ends) == 2 {
			scope[name] = linkScope(link)
		}
	}
	return scope
}

// agreed is the union of two scopes, with differs for what is not the same in both.
func agreed(a, b map[string]any) map[string]any {
	union := maps.Clone(a)
	for key, second := range b {
		first := union[key]
		x, isMap := first.(map[string]any)
		if y, both := second.(map[string]any); both && isMap {
			union[key] = agreed(x, y)
		} else if !reflect.DeepEqual(first, second) {
			union[key] = differs{}
		}
	}
	for key := range a {
		if _, ok := b[key]; !ok {
			union[key] = differs{}
		}
	}
	return union
}

// linkScope has the parameters of both directions, and at its top those in which the directions agree.
func linkScope(l *Link) map[string]any {
	forward, backward := directionScope(l.Forward), directionScope(l.Backward)
	scope := map[string]any{"forward": forward, "backward": backward, "mtu": l.MTU}
	for key, value := range forward {
		if reflect.DeepEqual(value, backward[key]) {
			scope[key] = value
		}
	}
	return scope
}

func directionScope(d *Direction) map[string]any {
	flat := *d
	flat.Then, flat.Trace = nil, nil // a recording has no parameter worth a bound
	scope := map[string]any{}
	text, err := json.Marshal(flat)
	if err == nil {
		err = json.Unmarshal(text, &scope)
	}
	if err != nil {
		panic(fmt.Sprintf("list the parameters of a direction: %v", err)) // numbers were finite in the file
	}
	if d.Then != nil {
		scope["then"] = directionScope(d.Then)
	}
	return scope
}

// metricScope is what a bound sees at a point beyond that: variant.subject.metric; variant.metric if the variant has one
// application; and subject.metric if no variants are declared.
func (p point) metricScope(value measured) map[string]any {
	scope := map[string]any{}
	for _, cell := range p.cells {
		inner := map[string]any{}
		metrics := cell.Spec.Metrics()
		for subject, list := range metrics {
			values := map[string]any{}
			for _, m := range list {
				values[m.Name] = value(cell.Variant, subject, m.Name)
			}
			if app := cell.Spec.Apps[subject]; app != nil && (app.hasGoodput() || app.countedGoodput(cell.Spec.Measure)) {
				values[everySecond] = value(cell.Variant, subject, everySecond)
			}
			inner[subject] = values
		}
		if cell.Variant == impliedVariant {
			maps.Copy(scope, inner)
			inner = maps.Clone(inner)
		}
		for name := range cell.Spec.Apps {
			if len(cell.Spec.Apps) == 1 {
				maps.Copy(inner, inner[name].(map[string]any))
			}
		}
		scope[cell.Variant] = inner
	}
	return scope
}

// overlay is the union of two scopes; mappings in both are merged.
func overlay(a, b map[string]any) map[string]any {
	union := maps.Clone(a)
	for key, value := range b {
		first, both := union[key].(map[string]any)
		if second, ok := value.(map[string]any); ok && both {
			value = overlay(first, second)
		}
		union[key] = value
	}
	return union
}

// overPoints joins the scopes of several points: every name that all of them have is the list of its values or, where
// single is set and they all are the same, that value.
func overPoints(scopes []map[string]any, single bool) map[string]any {
	joined := map[string]any{}
	for key, first := range scopes[0] {
		values := make([]any, 0, len(scopes))
		var inner []map[string]any
		for _, scope := range scopes {
			if value, ok := scope[key]; ok {
				values = append(values, value)
			}
			if m, ok := scope[key].(map[string]any); ok {
				inner = append(inner, m)
			}
		}
		equal := !slices.ContainsFunc(values, func(v any) bool { return !reflect.DeepEqual(v, first) })
		switch {
		case len(values) < len(scopes):
		case len(inner) == len(scopes):
			joined[key] = overPoints(inner, single)
		case single && equal:
			joined[key] = first
		default:
			joined[key] = values
		}
	}
	return joined
}

// scope is everything a bound can name over the points: over a single one, or lists over all. Parameters are those of the variants
// that e names.
func (e *expression) scope(points []point, all bool, value func(p point) measured) map[string]any {
	var named []string
	for _, name := range e.names() {
		named = append(named, name[0])
	}
	named = slices.DeleteFunc(named, func(name string) bool {
		return !slices.ContainsFunc(points, func(p point) bool {
			return slices.ContainsFunc(p.cells, func(c Cell) bool { return c.Variant == name })
		})
	})
	params, metrics := make([]map[string]any, len(points)), make([]map[string]any, len(points))
	for i, p := range points {
		params[i], metrics[i] = p.paramScope(named), p.metricScope(value(p))
	}
	if !all {
		return overlay(params[0], metrics[0])
	}
	return overlay(overPoints(params, true), overPoints(metrics, false))
}

// name is the point in words, e.g. loss=1, rtt=200.
func (p point) name() string {
	parts := make([]string, 0, len(p.params))
	for _, key := range sortedKeys(p.params) {
		parts = append(parts, fmt.Sprintf("%s=%v", key, p.params[key]))
	}
	return strings.Join(parts, ", ")
}
