package data

import (
	"fmt"
	"math"
)

// Convert changes the element type of little-endian numbers where that loses nothing but the rounding of floats: floats
// round to the nearest, ties to even; integers, and floats without a fraction, become integers of another width that hold
// them. Types are short names ("f16", "i64"); the error names the first element that does not fit, or a type that is not
// one of numbers. The result is a copy.
func Convert(src []byte, from, to string) ([]byte, error) {
	a, b := kinds[from], kinds[to]
	if a.size == 0 || b.size == 0 {
		return nil, fmt.Errorf("it is %s, but the program needs %s", from, to)
	}
	n := len(src) / a.size
	out := make([]byte, n*b.size)
	if from == to {
		copy(out, src)
		return out, nil
	}
	if !a.float && !b.float {
		return out, convertInts(out, src, from, to)
	}
	v := make([]float64, n)
	loadFloats(v, src, from)
	if b.float {
		storeFloats(out, v, to)
		return out, nil
	}
	whole := make([]int64, n)
	for i, x := range v {
		if x != math.Trunc(x) || x < float64(b.lo) || x > float64(b.hi) || math.Abs(x) >= 1<<63 {
			return nil, fmt.Errorf("element %d is %v of type %s, but the program needs %s", i, x, from, to)
		}
		whole[i] = int64(x)
	}
	storeInts(out, whole, to)
	return out, nil
}

func convertInts(out, src []byte, from, to string) error {
	a, b := kinds[from], kinds[to]
	v := make([]int64, len(src)/a.size)
	if bad := loadInts(v, src, from); bad >= 0 {
		return fmt.Errorf("element %d of type %s is larger than %d", bad, from, int64(math.MaxInt64))
	}
	for i, x := range v {
		if x < b.lo || x > b.hi {
			return fmt.Errorf("element %d is %d of type %s, but the program needs %s", i, x, from, to)
		}
	}
	storeInts(out, v, to)
	return nil
}

// Apply converts samples, rows of src of type from, into those of in, as a data set with this transform does. Errors name the
// sample.
func (t *Transform) Apply(src []byte, from string, in *Input) ([]byte, error) {
	c, err := newConverter(from, in, t)
	if err != nil {
		return nil, err
	}
	size, to := c.n*kinds[from].size, c.n*kinds[in.DType].size
	if size == 0 || len(src)%size != 0 {
		return nil, fmt.Errorf("%d bytes are not a whole number of samples of %d bytes", len(src), size)
	}
	out := make([]byte, len(src)/size*to)
	s := &scratch{ints: make([]int64, c.n), floats: make([]float64, c.n)}
	for i := range len(src) / size {
		if err := c.convert(out[i*to:(i+1)*to], src[i*size:(i+1)*size], s); err != nil {
			return nil, fmt.Errorf("sample %d: %w", i, err)
		}
	}
	return out, nil
}
