package shard

import (
	"encoding/binary"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/passes/layout"
	"github.com/gtc-compiler/gtc/target"
)

// plans remembers how ops run: what layout.Of says of one op holds for the same op of every layer, and the search for a
// tensor-parallel layout asks many times. Shardings are numbered in the order in which they come up; 0 is replicated.
type plans struct {
	m       mesh.Mesh
	costs   target.Cost
	layouts []mesh.Sharding
	numbers map[string]int32
	made    map[string]*plan
	key     []byte
	pairs   map[[2]int32]int32 // results of meet
	wishes  map[[2]int32]int32 // results of wanted
}

// plan is a layout.Plan with numbered shardings.
type plan struct {
	layout.Plan
	in, out []int32
	cost    float64 // of the op itself on a rank, in floating-point operations
}

func newPlans(m mesh.Mesh, c target.Cost) *plans {
	p := &plans{m: m, costs: c, numbers: map[string]int32{}, made: map[string]*plan{}, pairs: map[[2]int32]int32{}, wishes: map[[2]int32]int32{}}
	p.number(mesh.Sharding{})
	return p
}

// number is the number of s.
func (p *plans) number(s mesh.Sharding) int32 {
	text := s.String()
	n, ok := p.numbers[text]
	if !ok {
		n = int32(len(p.layouts))
		if text == "" {
			s = mesh.Sharding{}
		}
		p.numbers[text], p.layouts = n, append(p.layouts, s)
	}
	return n
}

// of plans op, which has that signature, for operands and wishes by number; no wishes: nil.
func (p *plans) of(signature int, op *ir.Op, in, want []int32) *plan {
	p.key = binary.AppendUvarint(p.key[:0], uint64(signature))
	for _, n := range in {
		p.key = binary.AppendUvarint(p.key, uint64(n))
	}
	for _, n := range want {
		p.key = binary.AppendUvarint(p.key, uint64(n)+1)
	}
	if made := p.made[string(p.key)]; made != nil {
		return made
	}
	key := string(p.key)
	made := &plan{Plan: layout.Of(p.m, op, p.list(in), p.list(want))}
	for _, s := range made.In {
		made.in = append(made.in, p.number(s))
	}
	for _, s := range made.Out {
		made.out = append(made.out, p.number(s))
	}
	made.cost = (float64(cost.Flops(op)) + p.costs.Byte*float64(cost.Bytes(op))) / float64(made.Ways)
	for _, r := range made.Reduce {
		made.cost += p.move(op.Out[r.Out].Type.Bytes(), mesh.Sharding{Dims: made.Out[r.Out].Dims, Partial: r.Axes}, made.Out[r.Out])
	}
	p.made[key] = made
	return made
}

func (p *plans) list(numbers []int32) []mesh.Sharding {
	if numbers == nil {
		return nil
	}
	out := make([]mesh.Sharding, len(numbers))
	for i, n := range numbers {
		out[i] = p.layouts[n]
	}
	return out
}

// meet is what two readers agree on: of each dim the leading axes that both split it over.
func (p *plans) meet(a, b int32) int32 {
	if a == b {
		return a
	}
	if n, ok := p.pairs[[2]int32{a, b}]; ok {
		return n
	}
	x, y := p.layouts[a], p.layouts[b]
	s := mesh.Sharding{Dims: make([][]string, max(len(x.Dims), len(y.Dims)))}
	for d := range s.Dims {
		xs, ys := x.Axes(d), y.Axes(d)
		k := 0
		for k < len(xs) && k < len(ys) && xs[k] == ys[k] {
			k++
		}
		s.Dims[d] = xs[:k]
	}
	n := p.number(s)
	p.pairs[[2]int32{a, b}] = n
	return n
}

// wanted is what have becomes when it is split further as need says, so that readers who need that find it made; have
// where need is no such thing, or where have is a sum over the same axes.
func (p *plans) wanted(have, need int32) int32 {
	if have == need {
		return have
	}
	if n, ok := p.wishes[[2]int32{have, need}]; ok {
		return n
	}
	x, y := p.layouts[have], p.layouts[need]
	s, n := mesh.Sharding{Dims: make([][]string, max(len(x.Dims), len(y.Dims))), Partial: x.Partial}, have
	fits, more := true, false
	for d := range s.Dims {
		xs, ys := x.Axes(d), y.Axes(d)
		if len(xs) > len(ys) || !slices.Equal(xs, ys[:len(xs)]) {
			fits = false
			break
		}
		for _, axis := range ys[len(xs):] {
			more = true
			if slices.Contains(x.Partial, axis) || slices.ContainsFunc(x.Dims, func(list []string) bool { return slices.Contains(list, axis) }) {
				fits = false
			}
		}
		s.Dims[d] = ys
	}
	if fits && more {
		n = p.number(s)
	}
	p.wishes[[2]int32{have, need}] = n
	return n
}

// move is the cost of laying a value of so many bytes in all, laid out as have, out as need.
func (p *plans) move(bytes int, have, need mesh.Sharding) float64 {
	local := float64(bytes)
	for _, axes := range have.Dims {
		for _, a := range axes {
			local /= float64(p.m.Size(a))
		}
	}
	total := 0.0
	message := func(axis string, bytes float64) {
		if axis != mesh.TimeAxis {
			total += p.costs.Message + p.costs.Link*bytes
		}
	}
	for _, a := range have.Partial {
		n := float64(p.m.Size(a))
		switch {
		case slices.Contains(need.Partial, a):
		case splitOver(need, a):
			if !slices.Contains(need.Axes(0), a) {
				total += p.costs.Strided * local
			}
			local /= n
			message(a, local*(n-1))
		default:
			message(a, 2*local*(n-1)/n)
		}
	}
	for d := range have.Dims {
		xs, ys := have.Axes(d), need.Axes(d)
		k := 0
		for k < len(xs) && k < len(ys) && xs[k] == ys[k] {
			k++
		}
		for _, a := range slices.Backward(xs[k:]) {
			n := float64(p.m.Size(a))
			message(a, local*(n-1))
			local *= n
			if d > 0 {
				total += p.costs.Strided * local
			}
		}
	}
	return total
}
