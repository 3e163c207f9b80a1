package shard

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/layout"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Sequence parallelism is laid over what the search finds; it has no part in it.
//
// Tensor parallelism is found, not prescribed. A class is all parameters that are alike: of the same dims, used in the
// same way (the c_fc of every layer). The search splits one class over tp at a time (a seed), carries that through the
// step (propagation), lets every parameter follow of which all readers now want a part, and keeps the seed when the step
// became cheaper. Of a multilayer perceptron either weight leads to the pair of Megatron-LM (arXiv:1909.08053): the
// first split by columns, the second by rows, one sum over ranks behind it and one before it in backward.

// class is a set of parameters that are alike.
type class struct {
	params []*ir.Value
	seed   int // the dim that the search splits; -1 none
}

// tensorLayout decides how parameters, buffers and state of @step lie on axis tp: shardings by name. Those of other values
// are the user's.
func tensorLayout(c *pass.Context, m mesh.Mesh) (map[string]mesh.Sharding, error) {
	f, _ := stepOf(c.Module).Clone()
	takeApart(&pass.Context{Module: c.Module, Opt: c.Opt, Pass: c.Pass}, f, nil)
	splitData(f, m)
	constraints, err := userConstraints(c, m, f)
	if err != nil {
		return nil, err
	}
	t := &tensorSearch{m: m, n: m.Size(mesh.TensorAxis), s: newPropagation(newPlans(m, c.Traits().Cost), map[string]int{}, f), constraints: constraints}
	t.s.open = true
	for i, v := range t.s.values {
		if s, ok := constraints[v.Name]; ok && v.Op != nil {
			t.s.asked[i] = s
		}
	}
	t.s.load()
	t.classes = classesOf(f)
	t.search()
	t.tell(c)
	out := map[string]mesh.Sharding{}
	for name, s := range constraints {
		if f.Param(name) == nil {
			out[name] = s
		}
	}
	for i, p := range f.Params {
		if s := t.s.layouts[t.s.lay[i]]; !p.Role.FromData() && !s.IsReplicated() {
			out[p.Name] = s
		}
	}
	return out, nil
}

type tensorSearch struct {
	m           mesh.Mesh
	n           int // ranks along tp
	s           *propagation
	constraints map[string]mesh.Sharding
	classes     []*class
	best        float64
	none        float64 // the price of a step without tensor parallelism
}

// try is the price of a step with the seeds as they are.
func (t *tensorSearch) try() float64 {
	clear(t.s.lay)
	t.s.load()
	fixed := map[string]bool{}
	for i, p := range t.s.f.Params {
		if s, ok := t.constraints[p.Name]; ok {
			t.s.lay[i], fixed[p.Name] = t.s.number(s), true
		}
	}
	for _, c := range t.classes {
		if c.seed < 0 {
			continue
		}
		for _, p := range c.params {
			if !fixed[p.Name] {
				s := mesh.Sharding{Dims: make([][]string, len(p.Type.Dims))}
				s.Dims[c.seed] = []string{mesh.TensorAxis}
				t.s.lay[t.s.index[p]] = t.s.number(s)
			}
		}
	}
	t.s.settle(mesh.TensorAxis, fixed)
	return t.s.price()
}

// search is coordinate descent over the classes, the largest first.
func (t *tensorSearch) search() {
	t.best = t.try()
	t.none = t.best
	for range 3 {
		changed := false
		for _, c := range t.classes {
			changed = t.improve(c) || changed
		}
		if !changed {
			break
		}
	}
	t.best = t.try()
}

// improve splits c in the dim that is best.
func (t *tensorSearch) improve(c *class) bool {
	old := c.seed
	keep := old
	for seed := -1; seed < len(c.params[0].Type.Dims); seed++ {
		if seed == old || seed >= 0 && c.params[0].Type.Dims[seed]%t.n != 0 {
			continue
		}
		c.seed = seed
		if price := t.try(); price < t.best*(1-1e-4) {
			t.best, keep = price, seed
		}
	}
	c.seed = keep
	return keep != old
}

// classesOf groups the weights by how they are used; those with most bytes in all come first. Weights are parameters of
// at least two dims, frozen ones too, that products and look-ups read; others (positions, gains) follow them.
func classesOf(f *ir.Func) []*class {
	colors, weights := colorsOf(f), weightsOf(f)
	byKey := map[string]*class{}
	var list []*class
	for _, p := range f.Params {
		if !weights[p] || p.Role != ir.Param && p.Role != ir.Buffer || len(p.Type.Dims) < 2 || !p.Type.DType.IsFloat() {
			continue
		}
		key := fmt.Sprintf("%v %x", p.Type.Dims, colors[p])
		c := byKey[key]
		if c == nil {
			c = &class{seed: -1}
			byKey[key] = c
			list = append(list, c)
		}
		c.params = append(c.params, p)
	}
	bytes := func(c *class) int { return len(c.params) * c.params[0].Type.Bytes() }
	slices.SortStableFunc(list, func(a, b *class) int { return cmp.Compare(bytes(b), bytes(a)) })
	return list
}

// weightsOf lists the parameters that, behind what makes other forms of them, products or look-ups read.
func weightsOf(f *ir.Func) map[*ir.Value]bool {
	weights := map[*ir.Value]bool{}
	for _, op := range slices.Backward(f.Ops) {
		reads := layout.Product(op) || op.Move() == ir.LooksUp
		for _, v := range op.In {
			if v != nil && !v.Data && (reads || weights[op.Out[0]]) {
				weights[v] = true
			}
		}
	}
	return weights
}

// colorsOf tells parameters apart by the ops that read them and those round these, two steps far (Weisfeiler and
// Leman's refinement), whatever their names.
func colorsOf(f *ir.Func) map[*ir.Value]uint64 {
	color, uses := map[*ir.Op]uint64{}, f.Uses()
	for _, op := range f.Ops {
		color[op] = mix(layout.Signature(op))
	}
	for range 2 {
		next := map[*ir.Op]uint64{}
		for _, op := range f.Ops {
			text := fmt.Sprint(color[op])
			for _, v := range op.In {
				if v != nil && v.Op != nil {
					text += fmt.Sprintf(" i%x", color[v.Op])
				}
			}
			for _, v := range op.Out {
				text += around(v, uses[v], color)
			}
			next[op] = mix(text)
		}
		color = next
	}
	out := map[*ir.Value]uint64{}
	for _, p := range f.Params {
		out[p] = mix(around(p, uses[p], color))
	}
	return out
}

// around describes who reads v as what, in any order.
func around(v *ir.Value, readers []*ir.Op, color map[*ir.Op]uint64) string {
	var list []string
	for _, op := range readers {
		list = append(list, fmt.Sprintf(" o%d %x", slices.Index(op.In, v), color[op]))
	}
	slices.Sort(list)
	return strings.Join(list, "")
}

func mix(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}
