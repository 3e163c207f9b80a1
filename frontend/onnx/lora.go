package onnx

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// loraSite is how a weight is read.
type loraSite struct {
	p        *Parameter
	products []*ir.Op // matmul with p, or its transpose, as operand 1
	lookups  []*ir.Op // gather of rows
	convs    []*ir.Op
	others   bool // anything else: the adapted weight is made as a whole
	inOut    bool
}

// addLoRA gives adapters to the weights that match and freezes all other parameters but those that --train names.
func addLoRA(w *walk.Walker) error {
	o := w.File.Options.LoRA
	if o.Rank == 0 {
		return nil
	}
	if o.Rank < 0 || o.Alpha < 0 || math.IsNaN(o.Alpha) || len(o.Targets) == 0 {
		return errors.New("--lora: want a positive rank, an alpha that is not negative, and a target")
	}
	var sites []*loraSite
	adapters := w.Roles.Adapters() // of an import before this one
	for _, p := range slices.Clone(w.Roles.Params) {
		if !adapters[p] && p.Role != RoleConstant && p.Value != nil && targets(&o, p) && !asked(w.Roles, p) {
			if s := site(w, p); s != nil {
				sites = append(sites, s)
			}
		}
	}
	if len(sites) == 0 {
		return fmt.Errorf("--lora: target %q matches no weight of a matrix product, a convolution or an embedding; gtc inspect lists the parameters",
			strings.Join(o.Targets, ","))
	}
	for _, p := range w.Roles.Params {
		if p.Role == RoleParameter && !adapters[p] && !asked(w.Roles, p) {
			p.Role, p.Reason = RoleBuffer, p.Reason+"; frozen, only adapters are trained (--lora)"
			if p.Value != nil {
				p.Value.Role = ir.Buffer
			}
		}
	}
	for _, s := range sites {
		if err := adapt(w, s, o); err != nil {
			return err
		}
	}
	rewriteLoRA(w, sites)
	return nil
}

// targets reports whether a pattern names p: its whole name, its name without ".weight", or, as in peft, the last part
// of its module's name.
func targets(o *LoRA, p *Parameter) bool {
	module := moduleOf(p.Name)
	for _, t := range o.Targets {
		if roles.Matches([]string{t, "*." + t, "*/" + t}, p.Name) || roles.Matches([]string{t, "*." + t, "*/" + t}, module) {
			return true
		}
	}
	return false
}

// moduleOf is the name of the module that a weight belongs to.
func moduleOf(name string) string { return strings.TrimSuffix(name, ".weight") }

// asked reports whether a flag says that p is to be trained.
func asked(r *roles.Roles, p *Parameter) bool {
	return p.Role == RoleParameter && strings.HasPrefix(p.Reason, roles.AskedByTrain)
}

// site finds how p is read; nil when no adapter fits it.
func site(w *walk.Walker, p *Parameter) *loraSite {
	s := &loraSite{p: p}
	d := p.Type.Dims
	if len(d) < 2 {
		return nil
	}
	views := map[*ir.Value]bool{p.Value: false} // true: transposed
	orientations := map[bool]int{}
	for _, op := range w.B.F.Ops {
		for i, in := range op.In {
			t, ok := views[in]
			if !ok {
				continue
			}
			switch {
			case op.Def == ops.TransposeDef && len(d) == 2 && slices.Equal(op.Attrs.(ops.TransposeAttrs).Perm, []int{1, 0}) && !t:
				views[op.Out[0]] = true
			case op.Def == ops.MatMulDef && i == 1 && len(d) == 2:
				s.products = append(s.products, op)
				orientations[op.Attrs.(ops.MatMulAttrs).TransB == t]++
			case op.Def == ops.GatherDef && i == 0 && len(d) == 2 && op.Attrs.(ops.GatherAttrs).Dim == 0 && !t:
				s.lookups = append(s.lookups, op)
			case op.Def == ops.ConvDef && i == 1:
				s.convs = append(s.convs, op)
				s.others = true
			default:
				s.others = true
			}
		}
	}
	if len(s.products)+len(s.lookups)+len(s.convs) == 0 && (!s.others || len(d) != 2) || len(d) != 2 && len(s.convs) == 0 {
		return nil
	}
	s.inOut = orientations[true] > 0
	if len(orientations) > 1 || s.inOut && len(s.lookups) > 0 {
		s.others = true
	}
	return s
}

// adapt makes the adapters of one weight.
func adapt(w *walk.Walker, s *loraSite, o LoRA) error {
	p, d := s.p, s.p.Type.Dims
	if p.Adapter != nil {
		return nil
	}
	alpha := o.Alpha
	if alpha == 0 {
		alpha = 8
	}
	l := &roles.Adapter{Scale: alpha / float64(o.Rank), InOut: s.inOut, Lookup: len(s.lookups) > 0 && len(s.products) == 0 && !s.others}
	l.Shared, l.Grouped = len(s.lookups) > 0 && !l.Lookup, inGroups(s.convs)
	out, in := d[0], d[1:]
	if l.InOut {
		out, in = d[1], d[:1]
	}
	ones := slices.Repeat([]int{1}, len(in)-1)
	aDims, bDims := append([]int{o.Rank}, in...), append([]int{out, o.Rank}, ones...)
	aName, bName := ".lora_A.weight", ".lora_B.weight"
	if l.Lookup {
		aDims, bDims = []int{o.Rank, d[0]}, []int{d[1], o.Rank}
		aName, bName = ".lora_embedding_A", ".lora_embedding_B"
	}
	base := "base_model.model." + moduleOf(p.Name)
	var err error
	if l.A, err = adapterParam(w, base+aName, p, ir.Type{DType: p.Type.DType, Dims: aDims}); err != nil {
		return err
	}
	if l.B, err = adapterParam(w, base+bName, p, ir.Type{DType: p.Type.DType, Dims: bDims}); err != nil {
		return err
	}
	random, bound := l.A, 1/math.Sqrt(float64(ir.Product(in))) // kaiming_uniform_(a=sqrt(5)) of torch.nn.init
	if l.Lookup {
		random, bound = l.B, 0 // peft: A zeros, B normal
	}
	data := initial(random, o.Seed, bound)
	random.Data = func() ([]byte, error) { return data, nil }
	random.Value.Init = &ir.Tensor{Type: random.Type, Data: data}
	p.Adapter = l
	p.Reason += fmt.Sprintf("; adapted with rank %d, scale %g", o.Rank, l.Scale)
	return nil
}

// adapterParam makes one trained parameter of zeros.
func adapterParam(w *walk.Walker, name string, of *Parameter, t ir.Type) (*Parameter, error) {
	if w.Roles.Named[name] != nil || w.File.Inits[name] != nil {
		return nil, fmt.Errorf("--lora: the model has a tensor %q already; train that with --freeze '*' --train", name)
	}
	p := &Parameter{Name: name, Type: t, DType: t.DType.String(), Dims: t.Dims, Role: RoleParameter, Reason: "adapter of " + of.Name + " (--lora)"}
	zeros := make([]byte, t.Bytes())
	p.Data = func() ([]byte, error) { return zeros, nil }
	p.Value = w.B.Param(name, t, ir.Param)
	p.Value.Init = &ir.Tensor{Type: t, Data: zeros}
	w.Roles.Params, w.Roles.Named[name] = append(w.Roles.Params, p), p
	return p, nil
}

// initial fills p: uniform in ±bound, or standard normal when bound is 0. The numbers depend on the name alone.
func initial(p *Parameter, seed uint64, bound float64) []byte {
	h := fnv.New64a()
	h.Write([]byte(p.Name))
	r := rand.New(rand.NewPCG(h.Sum64(), seed))
	a := ir.NewArray(p.Type)
	for i := range a.F {
		if bound == 0 {
			a.F[i] = r.NormFloat64()
		} else {
			a.F[i] = (2*r.Float64() - 1) * bound
		}
	}
	return fold.Settle(a).Tensor().Data
}

// delta is scale * B*A in the dims of the weight that l adapts.
func delta(l *roles.Adapter, b *ir.Builder, a, bb *ir.Value, dims []int) *ir.Value {
	rank := l.A.Type.Dims[0]
	a = ops.Reshape(b, a, []int{rank, ir.Product(l.A.Type.Dims[1:])})
	bb = ops.Reshape(b, bb, []int{l.B.Type.Dims[0], rank})
	var d *ir.Value
	if l.InOut || l.Lookup { // [in, out] = A^T B^T
		d = ops.MatMulT(b, a, bb, true, true)
	} else {
		d = ops.MatMul(b, bb, a)
	}
	return ops.Reshape(b, ops.Mul(b, d, ops.ScalarLike(b, d, l.Scale)), dims)
}

// rewriteLoRA puts the adapters into the program: beside products and lookups where the weight is read by these alone,
// else into the weight itself.
func rewriteLoRA(w *walk.Walker, sites []*loraSite) {
	f := w.B.F
	old := f.Ops
	f.Ops = nil
	subst := map[*ir.Value]*ir.Value{}
	beside := map[*ir.Op]*loraSite{}
	for _, s := range sites {
		if s.others {
			w.B.Loc = ir.Loc{Node: s.p.Name, OpType: "LoRA"}
			v := ops.Add(w.B, s.p.Value, delta(s.p.Adapter, w.B, s.p.Adapter.A.Value, s.p.Adapter.B.Value, s.p.Type.Dims))
			subst[s.p.Value] = w.B.Rename(v, s.p.Name+".adapted")
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
			w.B.Loc = op.Loc
			y := ops.Add(w.B, op.Out[0], lowRank(w, op, s.p.Adapter))
			subst[op.Out[0]] = w.B.Rename(y, op.Out[0].Name+".adapted")
		}
	}
	for i, r := range f.Results {
		if to := subst[r.Value]; to != nil {
			f.Results[i].Value = to
		}
	}
}

// lowRank is what the adapter adds to the result of a product or lookup.
func lowRank(w *walk.Walker, op *ir.Op, l *roles.Adapter) *ir.Value {
	b := w.B
	scaled := func(v *ir.Value) *ir.Value { return ops.Mul(b, v, ops.ScalarLike(b, v, l.Scale)) }
	if op.Def == ops.GatherDef {
		rows := ops.Transpose(b, l.A.Value, []int{1, 0}) // one row for each index
		second := l.B.Value
		if !l.Lookup { // a table that is also a product's weight [rows, width]: B has a row for each index
			return ops.MatMul(b, scaled(ops.Gather(b, second, op.In[1], 0)), l.A.Value)
		}
		return ops.MatMulT(b, scaled(gathered(w, op, rows)), second, false, true)
	}
	low := ops.MatMulT(b, op.In[0], l.A.Value, op.Attrs.(ops.MatMulAttrs).TransA, true)
	return ops.MatMulT(b, scaled(low), l.B.Value, false, true)
}

// gathered looks rows up as op does in its own table, padding row included.
func gathered(w *walk.Walker, op *ir.Op, rows *ir.Value) *ir.Value {
	return w.B.Emit(ops.GatherDef, op.Attrs, rows, op.In[1])
}

// Merge adds the adapters to the weights that they adapt. weights has the adapters' contents and what else was trained,
// by name; the result has all parameters of the model, without adapters. Import must have succeeded.
func (m *Model) Merge(weights map[string][]byte) (map[string][]byte, error) {
	if m.roles == nil {
		return nil, fmt.Errorf("%s: merge before import", m.Name)
	}
	out, adapters := map[string][]byte{}, m.roles.Adapters()
	for _, p := range m.roles.Params {
		if p.Role == RoleConstant || adapters[p] {
			continue
		}
		data, err := merged(p, weights)
		if err != nil {
			return nil, m.Located(err)
		}
		out[p.Name] = data
	}
	return out, nil
}

// merged is what p holds, with its adapter.
func merged(p *Parameter, weights map[string][]byte) ([]byte, error) {
	get := func(p *Parameter) ([]byte, error) {
		if data, ok := weights[p.Name]; ok {
			if len(data) != p.Type.Bytes() {
				return nil, fmt.Errorf("parameter %q is %s; %d bytes are given for it", p.Name, p.Type, len(data))
			}
			return data, nil
		}
		return p.Data()
	}
	base, err := get(p)
	if err != nil || p.Adapter == nil {
		return base, err
	}
	a, err := get(p.Adapter.A)
	if err != nil {
		return nil, err
	}
	b, err := get(p.Adapter.B)
	if err != nil {
		return nil, err
	}
	rank := p.Adapter.A.Type.Dims[0]
	left := (&ir.Tensor{Type: p.Adapter.B.Type, Data: b}).Array().F  // [out, rank]
	right := (&ir.Tensor{Type: p.Adapter.A.Type, Data: a}).Array().F // [rank, in]
	outs, ins := len(left)/rank, len(right)/rank
	sum := (&ir.Tensor{Type: p.Type, Data: slices.Clone(base)}).Array()
	for i := range outs {
		for k := range rank {
			x := p.Adapter.Scale * left[i*rank+k]
			for j := range ins {
				at := i*ins + j
				if p.Adapter.InOut || p.Adapter.Lookup {
					at = j*outs + i
				}
				sum.F[at] += x * right[k*ins+j]
			}
		}
	}
	return fold.Settle(sum).Tensor().Data, nil
}
