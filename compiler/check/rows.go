package check

import (
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// maxRows bounds the rows that are paired: each is compared with each.
const maxRows = 2048

// matchRows finds the gradient of the table that the reference calls name, [rows, width], in got's of the one parameter that
// holds no more of it than the rows that the model reads; the file does not say which rows. It is paired with the rows of want
// that are not zero, each with the nearest that is left, and gives the whole gradient that this makes; nil when there are
// not as many.
func matchRows(got results, name string, params []*onnx.Parameter, want []float64, dims []int) []float64 {
	var part *onnx.Parameter
	for _, p := range params {
		if p.Origin == name {
			if part != nil {
				return nil
			}
			part = p
		}
	}
	if part == nil || len(dims) != 2 {
		return nil
	}
	have, _, err := got.array(abi.Gradient.Of(part.Name))
	width := dims[1]
	if err != nil || width == 0 || len(have)%width != 0 {
		return nil
	}
	var rows []int
	for r := range dims[0] {
		if norm(want[r*width:(r+1)*width]) > 0 {
			rows = append(rows, r)
		}
	}
	if len(rows) != len(have)/width || len(rows) > maxRows {
		return nil
	}
	whole := make([]float64, len(want))
	for _, r := range rows {
		best, least := 0, math.Inf(1)
		for at := 0; at < len(have); at += width {
			if d := distance(have[at:at+width], want[r*width:(r+1)*width]); d < least {
				best, least = at, d
			}
		}
		copy(whole[r*width:], have[best:best+width])
		have = append(have[:best:best], have[best+width:]...)
	}
	return whole
}
