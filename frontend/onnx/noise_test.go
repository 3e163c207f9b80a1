package onnx

import (
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// noisy is a model of x[32,64] and scalar constants, whose outputs are those of the nodes called y, z.
func noisy(constants map[string]float64, nodes ...*onnxpb.NodeProto) *onnxpb.ModelProto {
	g := &onnxpb.GraphProto{Node: nodes, Input: []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 32, 64)}}
	for name, v := range constants {
		g.Initializer = append(g.Initializer, tensorOf(name, nil, v))
	}
	for _, n := range nodes {
		if name := n.Output[0]; name == "y" || name == "z" {
			g.Output = append(g.Output, portOf(name, onnxpb.TensorProto_FLOAT))
		}
	}
	return modelOf(18, g)
}

// spelled are dropouts that keep three elements of four, as exporters and frameworks spell them.
var spelled = map[string][]*onnxpb.NodeProto{
	"a product with a scaled mask": {nodeOf("RandomUniformLike", "u", list("x"), list("u")), nodeOf("Less", "k", list("u", "keep"), list("k")),
		nodeOf("Cast", "f", list("k"), list("f"), "to", 1), nodeOf("Mul", "s", list("f", "scale"), list("s")), nodeOf("Mul", "y", list("x", "s"), list("y"))},
	"scaled behind": {nodeOf("RandomUniformLike", "u", list("x"), list("u")), nodeOf("GreaterOrEqual", "k", list("u", "drop"), list("k")),
		nodeOf("Cast", "f", list("k"), list("f"), "to", 1), nodeOf("Mul", "m", list("f", "x"), list("m")), nodeOf("Mul", "y", list("m", "scale"), list("y"))},
	"TensorFlow's floor": {nodeOf("RandomUniformLike", "u", list("x"), list("u")), nodeOf("Add", "a", list("u", "keep"), list("a")),
		nodeOf("Floor", "f", list("a"), list("f")), nodeOf("Div", "d", list("x", "keep"), list("d")), nodeOf("Mul", "y", list("d", "f"), list("y"))},
	"a selection": {nodeOf("RandomUniformLike", "u", list("x"), list("u")), nodeOf("Greater", "k", list("drop", "u"), list("k")),
		nodeOf("Where", "w", list("k", "zero", "x"), list("w")), nodeOf("Div", "y", list("w", "keep"), list("y"))},
	"the other selection": {nodeOf("RandomUniformLike", "u", list("x"), list("u")), nodeOf("Less", "l", list("u", "drop"), list("l")), nodeOf("Not", "k", list("l"), list("k")),
		nodeOf("Mul", "m", list("x", "scale"), list("m")), nodeOf("Where", "y", list("k", "m", "zero"), list("y"))},
	"one less a mask": {nodeOf("RandomUniformLike", "u", list("x"), list("u"), "low", float32(-1), "high", float32(3)), nodeOf("Less", "l", list("u", "zero"), list("l")),
		nodeOf("Cast", "f", list("l"), list("f"), "to", 1), nodeOf("Sub", "o", list("one", "f"), list("o")), nodeOf("Mul", "m", list("o", "x"), list("m")), nodeOf("Div", "y", list("m", "keep"), list("y"))},
	"drop path": {nodeOf("RandomUniform", "u", nil, list("u"), "shape", []int64{32, 1}), nodeOf("Less", "k", list("u", "keep"), list("k")),
		nodeOf("Where", "w", list("k", "scale", "zero"), list("w")), nodeOf("Mul", "y", list("x", "w"), list("y"))},
	"Bernoulli": {nodeOf("Shape", "n", list("x"), list("n")), nodeOf("Expand", "e", list("keep", "n"), list("e")), nodeOf("Bernoulli", "u", list("e"), list("b")),
		nodeOf("Div", "d", list("b", "keep"), list("d")), nodeOf("Mul", "y", list("x", "d"), list("y"))},
	"one mask for two": {nodeOf("RandomUniformLike", "u", list("x"), list("u")), nodeOf("Less", "k", list("u", "keep"), list("k")), nodeOf("Cast", "f", list("k"), list("f"), "to", 1),
		nodeOf("Mul", "s", list("f", "scale"), list("s")), nodeOf("Mul", "y", list("x", "s"), list("y")), nodeOf("Neg", "g", list("x"), list("g")), nodeOf("Mul", "z", list("g", "s"), list("z"))},
}

// TestSpelledDropout: each spelling becomes a dropout that keeps as many and scales as much, and says so.
func TestSpelledDropout(t *testing.T) {
	numbers := map[string]float64{"keep": 0.75, "drop": 0.25, "scale": 1 / 0.75, "zero": 0, "one": 1}
	for name, nodes := range spelled {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(encode(noisy(numbers, nodes...)), "", Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			module, err := m.Import()
			if err != nil {
				t.Fatal(err)
			}
			text := module.String()
			if strings.Count(text, "= dropout ") != len(m.OutputNames) || strings.Contains(text, "= rand ") || !strings.Contains(text, "p=0.25") {
				t.Errorf("no dropout:\n%s", text)
			}
			if all := strings.Join(m.Warnings, "\n"); !strings.Contains(all, `the random numbers of "u" make a dropout`) {
				t.Errorf("warnings are %q", m.Warnings)
			}
			x := ir.NewArray(ir.T(dtype.F32, 32, 64))
			for i := range x.F {
				x.F[i] = float64(1 + i%7)
			}
			out, err := interp.Run(module.Funcs[0], map[string]*ir.Array{"x": x, "step": {Type: ir.T(dtype.I64), I: []int64{5}}})
			if err != nil {
				t.Fatal(err)
			}
			kept := 0
			for i, v := range out.All[0].F {
				if v != 0 {
					kept++
				}
				if v != 0 && math.Abs(v-x.F[i]/0.75) > 1e-6*x.F[i] {
					t.Fatalf("element %d is %g, which was %g", i, v, x.F[i])
				}
				if len(out.All) > 1 && out.All[1].F[i] != -v {
					t.Fatalf("element %d is kept in one and not in the other", i)
				}
			}
			draws := float64(len(x.F))
			if name == "drop path" {
				draws = 32
			}
			if part := float64(kept) / float64(len(x.F)); math.Abs(part-0.75) > 5*math.Sqrt(0.75*0.25/draws) { // five standard errors
				t.Errorf("%g of all are kept", part)
			}
		})
	}
}

// TestOtherNoise stays as it is, and is told.
func TestOtherNoise(t *testing.T) {
	numbers := map[string]float64{"keep": 0.75, "drop": 0.25, "scale": 1 / 0.75, "zero": 0, "one": 1, "four": 4}
	start := []*onnxpb.NodeProto{nodeOf("RandomUniformLike", "u", list("x"), list("u")), nodeOf("Less", "k", list("u", "keep"), list("k")), nodeOf("Cast", "f", list("k"), list("f"), "to", 1)}
	for name, nodes := range map[string][]*onnxpb.NodeProto{
		"normal":      {nodeOf("RandomNormalLike", "u", list("x"), list("n")), nodeOf("Add", "y", list("x", "n"), list("y"))},
		"not scaled":  append(start, nodeOf("Mul", "y", list("x", "f"), list("y"))),
		"mask shown":  append(start, nodeOf("Mul", "z", list("f", "scale"), list("z")), nodeOf("Mul", "y", list("x", "z"), list("y"))),
		"replaced":    append(start, nodeOf("Mul", "s", list("x", "scale"), list("s")), nodeOf("Where", "y", list("k", "s", "one"), list("y"))),
		"mask of its": append(start, nodeOf("Mul", "s", list("f", "scale"), list("s")), nodeOf("Mul", "m", list("f", "s"), list("m")), nodeOf("Mul", "y", list("x", "m"), list("y"))),
		"complements": append(start, nodeOf("Mul", "s", list("f", "scale"), list("s")), nodeOf("Mul", "y", list("x", "s"), list("y")),
			nodeOf("Sub", "o", list("one", "f"), list("o")), nodeOf("Mul", "o4", list("o", "four"), list("o4")), nodeOf("Mul", "z", list("x", "o4"), list("z"))),
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(encode(noisy(numbers, nodes...)), "", Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			module, err := m.Import()
			if err != nil {
				t.Fatal(err)
			}
			text := module.String()
			if strings.Contains(text, "= dropout ") || !strings.Contains(text, "= rand ") {
				t.Errorf("a dropout:\n%s", text)
			}
			if all := strings.Join(m.Warnings, "\n"); !strings.Contains(all, `results are random, in evaluation too: "u" (Random`) {
				t.Errorf("warnings are %q", m.Warnings)
			}
		})
	}
}
