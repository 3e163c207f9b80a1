// Package lora puts low-rank adapters beside weights, which are trained in their place.
//
// # Design
//
// Adapters stand beside the products and lookups that read a weight, y = x*W + Alpha/Rank * (x*A)*B, so that W itself is never made
// anew and its gradient never asked for. Where a weight is read in another way as well (a convolution, a slice of it, both a table and a
// product), the adapted weight is made once, as a whole. All other parameters become buffers, but for those that are asked for by name.
//
// What later passes see are ordinary ops and parameters; whoever merges or writes adapters reads pass.Context.Adapters.
package lora

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run gives adapters to the weights of @forward that match, and freezes all other parameters but those that are asked for.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	o := &c.Opt.LoRA
	if o.Rank == 0 {
		return nil
	}
	if o.Rank < 0 || !(o.Alpha >= 0) || len(o.Targets) == 0 {
		return ir.Errorf(ir.Loc{}, "--lora needs a rank above 0, an alpha that is not negative, and a target")
	}
	f := c.Module.Func(abi.FuncForward)
	if f == nil {
		return ir.Errorf(ir.Loc{}, "--lora: the module has no @forward, which is what adapters are put into")
	}
	var sites []*site
	targeted := targets(o)
	for _, p := range f.Params {
		if (p.Role == ir.Param || p.Role == ir.Buffer) && p.Type.DType.IsFloat() && targeted(p.Name) && !trained(o, p) {
			if s := siteOf(f, p); s != nil {
				sites = append(sites, s)
			}
		}
	}
	if len(sites) == 0 {
		return ir.Errorf(ir.Loc{}, "--lora: target %q matches no weight of a matrix product, a convolution or an embedding; gtc inspect lists the parameters",
			strings.Join(o.Targets, ","))
	}
	for _, p := range f.Params {
		if p.Role == ir.Param && !trained(o, p) {
			p.Role = ir.Buffer
		}
	}
	b := ir.NewBuilder(f)
	for _, s := range sites {
		if err := s.adapt(b, o); err != nil {
			return err
		}
		c.Adapters = append(c.Adapters, s.Adapter)
	}
	rewrite(b, sites)
	for _, s := range sites {
		where := "beside what reads it"
		if s.others {
			where = "added to it as a whole, because it is read in other ways than by products or by lookups alone"
		}
		c.Remark(s.p, "has an adapter of rank %d, scale %g, %s", o.Rank, s.Scale, where)
	}
	return nil
}

// site is a weight with its adapter, and how it is read.
type site struct {
	pass.Adapter
	p        *ir.Value
	a, b     *ir.Value
	products []*ir.Op // matmul with p, or its transpose, as operand 1
	lookups  []*ir.Op // gather of rows
	conv     bool     // a convolution reads it
	others   bool     // anything else: the adapted weight is made as a whole
}

// targets gives what reports whether a pattern names a parameter: its whole name, its name without ".weight", or, as in peft, the last
// part of its module's name.
func targets(o *pass.LoRA) func(name string) bool {
	var patterns []string
	for _, t := range o.Targets {
		patterns = append(patterns, pass.Glob(t))
	}
	match := regexp.MustCompile("(?s)^(.*[./])?(" + strings.Join(patterns, "|") + ")$").MatchString
	return func(name string) bool { return match(name) || match(moduleOf(name)) }
}

// moduleOf is the name of the module that a weight belongs to.
func moduleOf(name string) string { return strings.TrimSuffix(name, ".weight") }

// trained reports whether p is trained because it is asked for by name.
func trained(o *pass.LoRA, p *ir.Value) bool {
	return p.Role == ir.Param && slices.Contains(o.Trained, p.Name)
}

// siteOf finds how p is read; nil when no adapter fits it.
func siteOf(f *ir.Func, p *ir.Value) *site {
	s := &site{p: p}
	d := p.Type.Dims
	if len(d) < 2 {
		return nil
	}
	views := map[*ir.Value]bool{p: false} // true: transposed
	orientations := map[bool]int{}
	for _, op := range f.Ops {
		for i, in := range op.In {
			t, ok := views[in]
			if !ok {
				continue
			}
			switch a := op.Attrs.(type) {
			case ops.TransposeAttrs:
				if len(d) == 2 && slices.Equal(a.Perm, []int{1, 0}) && !t {
					views[op.Out[0]] = true
					continue
				}
			case ops.MatMulAttrs:
				if i == 1 && len(d) == 2 {
					s.products = append(s.products, op)
					orientations[a.TransB == t]++
					continue
				}
			case ops.GatherAttrs:
				if i == 0 && len(d) == 2 && a.Dim == 0 && !t {
					s.lookups = append(s.lookups, op)
					continue
				}
			case ops.ConvAttrs:
				if i == 1 {
					s.conv, s.Grouped = true, s.Grouped || a.Groups > 1
				}
			}
			s.others = true
		}
	}
	if len(d) != 2 && !s.conv || len(s.products)+len(s.lookups) == 0 && !s.others { // a convolution is one of the others
		return nil
	}
	s.InOut = orientations[true] > 0
	if len(orientations) > 1 || s.InOut && len(s.lookups) > 0 {
		s.others = true
	}
	return s
}

// rewrite puts the adapters into the program: beside products and lookups where the weight is read by these alone,
// else into the weight itself.
func rewrite(b *ir.Builder, sites []*site) {
	f := b.F
	old := f.Ops
	f.Ops = nil
	subst := map[*ir.Value]*ir.Value{}
	beside := map[*ir.Op]*site{}
	for _, s := range sites {
		if s.others {
			b.Loc = ir.Loc{Node: s.p.Name, OpType: "LoRA"}
			subst[s.p] = b.Rename(ops.Add(b, s.p, s.delta(b)), s.p.Name+".adapted")
			continue
		}
		for _, op := range slices.Concat(s.products, s.lookups) {
			beside[op] = s
		}
	}
	for _, op := range old {
		for i, in := range op.In {
			if to := subst[in]; to != nil {
				op.In[i] = to
			}
		}
		f.Ops = append(f.Ops, op)
		if s := beside[op]; s != nil {
			b.Loc = op.Loc
			y := ops.Add(b, op.Out[0], s.lowRank(b, op))
			subst[op.Out[0]] = b.Rename(y, op.Out[0].Name+".adapted")
		}
	}
	for i, r := range f.Results {
		if to := subst[r.Value]; to != nil {
			f.Results[i].Value = to
		}
	}
}

// scaled is v times the scale.
func (s *site) scaled(b *ir.Builder, v *ir.Value) *ir.Value {
	return ops.Mul(b, v, ops.ScalarLike(b, v, s.Scale))
}

// delta is Scale * B*A in the dims of the weight.
func (s *site) delta(b *ir.Builder) *ir.Value {
	rank := s.Rank()
	left := ops.Reshape(b, s.a, []int{rank, ir.Product(s.A.Type.Dims[1:])})
	right := ops.Reshape(b, s.b, []int{s.B.Type.Dims[0], rank})
	var d *ir.Value
	if s.Transposed() { // [in, out] = A^T B^T
		d = ops.MatMulT(b, left, right, true, true)
	} else {
		d = ops.MatMul(b, right, left)
	}
	return ops.Reshape(b, s.scaled(b, d), s.p.Type.Dims)
}

// lowRank is what the adapter adds to the result of a product or lookup.
func (s *site) lowRank(b *ir.Builder, op *ir.Op) *ir.Value {
	a, ok := ops.AsMatMul(op)
	if !ok {
		if !s.Lookup { // a table that is also a product's weight [rows, width]: B has a row for each index
			return ops.MatMul(b, s.scaled(b, ops.Gather(b, s.b, op.In[1], 0)), s.a)
		}
		rows := ops.Transpose(b, s.a, []int{1, 0}) // one for each index, looked up as op does in its own table, padding row included
		return ops.MatMulT(b, s.scaled(b, b.Emit(op.Def, op.Attrs, rows, op.In[1])), s.b, false, true)
	}
	low := ops.MatMulT(b, op.In[0], s.a, a.TransA, true)
	return ops.MatMulT(b, s.scaled(b, low), s.b, false, true)
}
