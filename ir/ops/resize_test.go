package ops

import (
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Which of 4 source elements each of 8, 7, 3 and 1 results reads, as ONNX Runtime 1.2x does.
func TestResizeNearest(t *testing.T) {
	for _, c := range []struct{ coord, nearest, want string }{
		{"half_pixel", "floor", "00011223 0001223 012 1"},
		{"half_pixel", "ceil", "01122333 0112333 123 2"},
		{"half_pixel", "round_prefer_floor", "00112233 0011233 013 1"},
		{"half_pixel", "round_prefer_ceil", "00112233 0012233 023 2"},
		{"pytorch_half_pixel", "floor", "00011223 0001223 012 0"},
		{"pytorch_half_pixel", "round_prefer_floor", "00112233 0011233 013 0"},
		{"align_corners", "floor", "00011223 0011223 013 0"},
		{"align_corners", "round_prefer_floor", "00112233 0011223 013 0"},
		{"align_corners", "round_prefer_ceil", "00112233 0112233 023 0"},
		{"asymmetric", "floor", "00112233 0011223 012 0"},
		{"asymmetric", "ceil", "01122333 0122333 023 0"},
		{"asymmetric", "round_prefer_floor", "00112233 0112233 013 0"},
		{"asymmetric", "round_prefer_ceil", "01122333 0112233 013 0"},
	} {
		for _, want := range strings.Fields(c.want) {
			v := newValues(t)
			x := v.b.Param("x", ir.T(dtype.F64, 2, 4, 1), ir.Input)
			v.in = append(v.in, ramp(x.Type, 0, 1))
			var places []float64
			for _, first := range []float64{0, 4} {
				for _, d := range want {
					places = append(places, first+float64(d-'0'))
				}
			}
			y := ResizeAxis(v.b, x, 1, len(want), 0, ResizeMode{Coord: c.coord, Nearest: c.nearest})
			v.check(c.coord+" "+c.nearest, y, places...)
		}
	}
}

// Values of ONNX Runtime for sin(0), sin(1), sin(2), sin(3).
func TestResizeLinear(t *testing.T) {
	for _, c := range []struct {
		coord string
		want  [][]float64
	}{
		{"half_pixel", [][]float64{{0, 0.2103677, 0.6311032, 0.8584276, 0.8923408, 0.717253, 0.3331643, 0.14112},
			{0, 0.3005253, 0.7813659, 0.8753842, 0.8544276, 0.4154691, 0.14112}, {0.1402452, 0.8753842, 0.2691496}, {0.8753842}}},
		{"pytorch_half_pixel", [][]float64{{0, 0.2103677, 0.6311032, 0.8584276, 0.8923408, 0.717253, 0.3331643, 0.14112}, {0}}},
		{"align_corners", [][]float64{{0, 0.3606304, 0.7212608, 0.8608499, 0.8899184, 0.7995578, 0.4703389, 0.14112},
			{0, 0.4207355, 0.841471, 0.8753842, 0.9092974, 0.5252087, 0.14112}, {0, 0.8753842, 0.14112}, {0}}},
		{"asymmetric", [][]float64{{0, 0.4207355, 0.841471, 0.8753842, 0.9092974, 0.5252087, 0.14112, 0.14112},
			{0, 0.4808406, 0.8511605, 0.8899184, 0.6898181, 0.2508596, 0.14112}, {0, 0.8640798, 0.3971791}, {0}}},
	} {
		for _, want := range c.want {
			v := newValues(t)
			y := ResizeAxis(v.b, v.wave(0, 1, 4), 1, len(want), 0, ResizeMode{Linear: true, Coord: c.coord})
			if got := evaluate(t, v.b.F, v.in, y)[0].F; len(got) == len(want) {
				for i := range got {
					if math.Abs(got[i]-want[i]) > 2e-6 {
						t.Errorf("%s to %d: %v, want %v", c.coord, len(want), got, want)
						break
					}
				}
			}
		}
	}
}

// Doubling by the nearest neighbour must not need a scatter in the backward pass.
func TestResizeRepeatsByExpand(t *testing.T) {
	v := newValues(t)
	ResizeAxis(v.b, v.wave(0, 1, 4), 1, 8, 2, ResizeMode{Coord: "asymmetric", Nearest: "floor"})
	for _, op := range v.b.F.Ops {
		if op.Def == GatherDef {
			t.Error("gathers")
		}
	}
}

func TestResizeNamesUnknownModes(t *testing.T) {
	v := newValues(t)
	x := v.wave(0, 1, 4)
	try := func(m ResizeMode) (err error) {
		defer ir.Recover(&err)
		ResizeAxis(v.b, x, 1, 8, 2, m)
		return nil
	}
	for word, m := range map[string]ResizeMode{"tf_crop_and_resize": {Coord: "tf_crop_and_resize"}, `"even"`: {Coord: "asymmetric", Nearest: "even"}} {
		if err := try(m); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: error %v", m, err)
		}
	}
}
