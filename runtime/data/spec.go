package data

import (
	"fmt"
	"strconv"
	"strings"
)

// Input describes one input of the program.
type Input struct {
	Name   string
	DType  string // short name: "f32", "i64", ...
	Shape  []int  // of one sample: without the batch dim
	Target bool   // this is what the loss compares the output with
	// BatchDim is the dim along which the model has its samples. Arrays may have them along that dim or along the first.
	BatchDim int
	Ahead    int // how many places later the model's own loss looks in it: it shifts its labels

	// Lo and Hi bound integer values when Lo < Hi: Lo <= v < Hi. A token or a class outside
	// would make a kernel read outside its tables.
	Lo, Hi int64
	// Ignore, for a target, is the value that the loss leaves out (ignore_index). It is
	// allowed beside [Lo, Hi), and the targets of padding rows are filled with it.
	Ignore *int64
}

// size is the number of elements of one sample.
func (in *Input) size() int {
	n := 1
	for _, d := range in.Shape {
		n *= d
	}
	return n
}

// Transform maps values on their way into a float input: v*Scale + Shift, in float64,
// rounded once. Scale and Shift have one element, or one for each index of the sample's
// first dim (the channels of an image). An empty Scale stands for 1, an empty Shift for 0.
type Transform struct {
	Scale, Shift []float64
}

// ParseTransform reads "scale=1/255,mean=0.1307,std=0.3081": v*scale, less mean, over std.
// Numbers may be quotients, and lists "0.485:0.456:0.406" give one for each channel.
// "identity" allows a float input to be read from floats of another width.
func ParseTransform(s string) (Transform, error) {
	if s == "identity" {
		return Transform{Scale: []float64{1}}, nil
	}
	part := map[string][]float64{"scale": {1}, "mean": {0}, "std": {1}}
	wide := 1
	for _, field := range strings.Split(s, ",") {
		key, text, ok := strings.Cut(field, "=")
		if _, known := part[key]; !ok || !known {
			return Transform{}, fmt.Errorf("transform %q: %q is not scale=, mean= or std=", s, field)
		}
		var list []float64
		for _, item := range strings.Split(text, ":") {
			v, err := quotient(item)
			if err != nil || (key == "std" && v == 0) {
				return Transform{}, fmt.Errorf("transform %q: %q is not a number that %s can be", s, item, key)
			}
			list = append(list, v)
		}
		if len(list) > 1 && wide > 1 && len(list) != wide {
			return Transform{}, fmt.Errorf("transform %q: its lists have %d and %d numbers, but must be equally long", s, wide, len(list))
		}
		wide = max(wide, len(list))
		part[key] = list
	}
	at := func(key string, i int) float64 { return part[key][min(i, len(part[key])-1)] }
	t := Transform{Scale: make([]float64, wide), Shift: make([]float64, wide)}
	for i := range wide {
		t.Scale[i] = at("scale", i) / at("std", i)
		t.Shift[i] = 0 - at("mean", i)/at("std", i) // 0 -: no negative zero
	}
	return t, nil
}

func quotient(s string) (float64, error) {
	num, den, ok := strings.Cut(s, "/")
	a, err := strconv.ParseFloat(num, 64)
	if err != nil || !ok {
		return a, err
	}
	b, err := strconv.ParseFloat(den, 64)
	if err == nil && b == 0 {
		err = fmt.Errorf("division by zero")
	}
	return a / b, err
}

// check says why t does not suit an input, or nil.
func (t *Transform) check(in *Input) error {
	for _, list := range [][]float64{t.Scale, t.Shift} {
		if n := len(list); n > 1 && (len(in.Shape) == 0 || in.Shape[0] != n) {
			return fmt.Errorf("the transform has %d channels, but a sample has shape %v", n, in.Shape)
		}
	}
	return nil
}

// channel returns the factor and summand of channel c.
func (t *Transform) channel(c int) (scale, shift float64) {
	scale = 1
	if n := len(t.Scale); n > 0 {
		scale = t.Scale[min(c, n-1)]
	}
	if n := len(t.Shift); n > 0 {
		shift = t.Shift[min(c, n-1)]
	}
	return scale, shift
}

// channels is how many different maps t has.
func (t *Transform) channels() int { return max(1, len(t.Scale), len(t.Shift)) }
