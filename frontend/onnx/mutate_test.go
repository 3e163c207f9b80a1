package onnx

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
)

// mutate makes one random change of a kind that keeps the file decodable, so that rules and not the decoder are tried.
func mutate(r *rand.Rand, m *onnxpb.ModelProto) {
	g := m.Graph
	sizes := []int64{-1, 0, 1, 2, 3, 5, 7, 1 << 20, 1 << 31, 1 << 40, math.MaxInt64, math.MinInt64, -2, -3}
	size := func() int64 { return sizes[r.IntN(len(sizes))] }
	if len(g.Node) == 0 {
		return
	}
	n := g.Node[r.IntN(len(g.Node))]
	for _, a := range n.Attribute { // of a loop or branch, usually a node inside it
		if a.G != nil && len(a.G.Node) > 0 && r.IntN(3) > 0 {
			n = a.G.Node[r.IntN(len(a.G.Node))]
			if r.IntN(8) == 0 && len(a.G.Input) > 0 {
				a.G.Input = a.G.Input[1:]
			}
			if r.IntN(8) == 0 && len(a.G.Output) > 0 {
				a.G.Output = append(a.G.Output[1:], a.G.Output[0])
			}
			break
		}
	}
	switch r.IntN(11) {
	case 0:
		if len(n.Input) > 0 {
			n.Input = n.Input[:r.IntN(len(n.Input))]
		}
	case 1:
		if len(n.Input) > 0 {
			n.Input[r.IntN(len(n.Input))] = ""
		}
	case 2:
		if len(n.Input) > 0 {
			n.Input = append(n.Input, n.Input[r.IntN(len(n.Input))])
		}
	case 3, 4:
		if len(n.Attribute) > 0 {
			a := n.Attribute[r.IntN(len(n.Attribute))]
			a.I, a.F = ptr(size()), ptr(float32(size()))
			for i := range a.Ints {
				if r.IntN(2) == 0 {
					a.Ints[i] = size()
				}
			}
			if r.IntN(4) == 0 && len(a.Ints) > 0 {
				a.Ints = a.Ints[:r.IntN(len(a.Ints))]
			}
		}
	case 5:
		if len(n.Attribute) > 0 {
			i := r.IntN(len(n.Attribute))
			n.Attribute = append(n.Attribute[:i], n.Attribute[i+1:]...)
		}
	case 6, 7:
		if len(g.Input) > 0 {
			dims := g.Input[r.IntN(len(g.Input))].Type.GetTensorType().GetShape()
			switch {
			case dims == nil:
			case r.IntN(3) == 0:
				dims.Dim = append(dims.Dim, portOf("", f32, 2).Type.GetTensorType().Shape.Dim[0])
			case len(dims.Dim) > 0 && r.IntN(3) == 0:
				dims.Dim = dims.Dim[:len(dims.Dim)-1]
			case len(dims.Dim) > 0:
				dims.Dim[r.IntN(len(dims.Dim))].Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(r.IntN(8))}
			}
		}
	case 8:
		all := Operators()
		n.OpType = ptr(all[r.IntN(len(all))])
	case 9:
		if len(g.Input) > 0 {
			if t := g.Input[r.IntN(len(g.Input))].Type.GetTensorType(); t != nil {
				t.ElemType = ptr([]int32{1, 6, 7, 9, 10, 11}[r.IntN(6)])
			}
		}
	case 10:
		m.OpsetImport[0].Version = ptr([]int64{7, 9, 10, 11, 13, 17, 18, 20, 21, 23}[r.IntN(10)])
	}
}

// tryMutant imports with every input given at run time and with the small ones fixed; a panic fails the test.
func tryMutant(t *testing.T, what string, p *onnxpb.ModelProto, c *onnxtest.Case) {
	defer func() {
		if e := recover(); e != nil {
			t.Errorf("%s: %v\n%s", what, e, debug.Stack())
		}
	}()
	data, err := p.Marshal()
	if err != nil {
		return
	}
	for _, fixed := range []bool{false, true} {
		m, err := Parse(data, "", Options{Batch: 2})
		if err != nil {
			return
		}
		if fixed && c != nil {
			m.Options.Batch = 0
			m.fixAll(c)
		}
		mod, err := m.Import()
		if err != nil {
			if strings.Contains(err.Error(), "BUG") {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if err := mod.Verify(); err != nil {
			t.Errorf("%s: %v\n%s", what, err, mod)
		}
	}
}

// TestMutants damages good models in ways that decode: the ONNX project's cases when they are there, else our own.
func TestMutants(t *testing.T) {
	base := []*onnxtest.Case{}
	for _, m := range []*onnxpb.ModelProto{linearModel(), functionModel(), normModel(), shapeModel(), sequenceModel(), branchModel(),
		loopModel(4), gradientModel(list("w", "x2")), callsOf(3, 2, true)} {
		base = append(base, &onnxtest.Case{Name: "own", Model: encode(m), Sets: []onnxtest.Set{{}}})
	}
	base = append(base, readBackend(t, func(string) bool { return true })...)
	r := rand.New(rand.NewPCG(1, 4))
	rounds := 3
	for _, c := range base {
		for round := range rounds {
			p := &onnxpb.ModelProto{}
			if p.Unmarshal(c.Model) != nil || p.Graph == nil || len(p.OpsetImport) == 0 {
				break
			}
			for range 1 + r.IntN(3) {
				mutate(r, p)
			}
			tryMutant(t, fmt.Sprintf("%s, round %d", c.Name, round), p, c)
		}
	}
}
