package experiment

import (
	"errors"
	"math"
	"reflect"
	"slices"
)

// The expression language has functions of these names, but its max and min pass over what is not a number, and its mean and median of nothing
// are 0: a bound over a metric that was not measured, or over an empty selection, would hold.

// harm is 1 - competing/alone: what a flow loses to a competing one (Ware et al., "Beyond Jain's Fairness Index", HotNets 2019).
func harm(args ...any) (any, error) {
	alone, err := number(args[0])
	if err != nil {
		return nil, err
	}
	competing, err := number(args[1])
	return 1 - competing/alone, err
}

// behind is the most by which what a list adds up to falls short of what another does over any run of its elements, in units of the other's mean: a sum that
// starts anew whenever it is negative (Page, "Continuous Inspection Schemes", Biometrika 1954). What the next element makes up for does not count: a lost packet
// holds back those after it, and then all of them arrive. The lists are compared up to where the first of them ends.
func behind(args ...any) (any, error) {
	list, _, err := flat(nil, true, args[:1])
	if err != nil {
		return nil, err
	}
	other, _, err := flat(nil, true, args[1:])
	if err != nil {
		return nil, err
	}
	other = other[:min(len(list), len(other))]
	short, most := 0.0, 0.0
	for i, wanted := range other {
		before := short
		short = max(0, short+wanted-list[i]) // not a number if one of them is not
		most = max(most, min(before, short))
	}
	return most / mean(other), nil
}

// aggregate is a function over numbers and lists of numbers. Where one of them is not a number, neither is the result.
func aggregate(of func(values []float64) float64) func(args ...any) (any, error) {
	return func(args ...any) (any, error) {
		if len(args) == 0 {
			return nil, errors.New("numbers or a list of numbers are needed in the parentheses")
		}
		values, whole, err := flat(nil, true, args)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(values, math.IsNaN) {
			return math.NaN(), nil
		}
		result := of(values)
		if whole && result == math.Trunc(result) && math.Abs(result) < 1<<53 {
			return int(result), nil // for the operators that take whole numbers only
		}
		return result, nil
	}
}

// flat adds the numbers in args and in the lists among them to values, and says whether all of them are whole numbers.
func flat(values []float64, whole bool, args []any) ([]float64, bool, error) {
	for _, arg := range args {
		if list := reflect.ValueOf(arg); list.Kind() == reflect.Slice { // a constant list is one of int or float64
			inner := make([]any, list.Len())
			for i := range inner {
				inner[i] = list.Index(i).Interface()
			}
			var err error
			if values, whole, err = flat(values, whole, inner); err != nil {
				return nil, false, err
			}
			continue
		}
		v, err := number(arg)
		if err != nil {
			return nil, false, err
		}
		_, isInt := arg.(int)
		values, whole = append(values, v), whole && isInt
	}
	return values, whole, nil
}

func largest(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Max(values)
}

func smallest(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	return slices.Min(values)
}

func sum(values []float64) float64 {
	total := 0.0
	for _, v := range values {
		total += v
	}
	return total
}

func mean(values []float64) float64 { return sum(values) / float64(len(values)) }

func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
