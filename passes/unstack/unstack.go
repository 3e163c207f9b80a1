// Package unstack takes fused projections apart before differentiation, so that tensor parallelism can split each: the
// queries, keys and values of one product (GPT-2, vision transformers), a gate and what it gates.
//
// # Design
//
// A product with a weight [d,n·e] whose result is only ever read in its n parts of e columns, behind views, becomes n
// products. The parameter is stored as [d,n,e], of which every rank can take its e/tp columns of each part; split as
// [d,n·e] the first rank would have all queries and the last all values. Its contents, and what files say of it, are
// those of [d,n·e] (pass.Context.FileDims): the bytes are the same. A bias [n·e] is stored as [n,e] likewise.
//
// Keys and values with fewer heads than there are ranks are repeated, each head for the ranks whose queries read it.
//
// Without tensor parallelism nothing changes: one product is faster than n.
package unstack

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// most is the largest number of parts that is looked for; what is added to parts is looked through up to mostAdded (the
// gates of recurrent layers are more).
const (
	most      = 8
	mostAdded = 3
)

// Run takes apart what it finds in @step, in all functions alike.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	if c.Opt.TP <= 1 {
		return nil
	}
	f := c.Module.Func(abi.FuncStep)
	if f == nil {
		return nil
	}
	found := map[string]int{} // parts of weights and biases, by name
	uses := f.Uses()
	for _, op := range f.Ops {
		n := parts(f, op, uses, c.Opt.TP)
		if n == 0 || !c.May(op.In[1], "stored as %d parts", n) {
			continue
		}
		found[op.In[1].Name] = n
		if len(op.In) > 2 && op.In[2] != nil {
			found[op.In[2].Name] = n
		}
		c.Remark(op.In[1], "is stored as %d parts of %d columns each, so that each can be split over tp", n, columns(op)/n)
	}
	for _, f := range c.Module.Funcs {
		u := &unstacker{c: c, f: f, found: found, stacks: map[*ir.Value][]*ir.Value{}, dims: map[*ir.Value]int{}, old: map[*ir.Value][]int{}, apart: map[*ir.Op]bool{}}
		u.prepare()
		u.params()
		c.Rewrite(f, u.op)
	}
	return nil
}

// columns is the size of the last dim of a product.
func columns(op *ir.Op) int { return op.Out[0].Type.Dims[len(op.Out[0].Type.Dims)-1] }

// parts is the number of parts that op, a product with a parameter, is read in; 0 when it is no such thing.
func parts(f *ir.Func, op *ir.Op, uses map[*ir.Value][]*ir.Op, tp int) int {
	if !isMatMul(op) || !own(op.In[1], uses, 2) || len(op.In) > 2 && op.In[2] != nil && !own(op.In[2], uses, 1) {
		return 0
	}
	n := columns(op)
	for k := 2; k <= most; k++ {
		if n%k == 0 && n/k%tp == 0 && followed(f, op.Out[0], len(op.Out[0].Type.Dims)-1, k, uses) {
			return k
		}
	}
	return 0
}

// isMatMul reports whether op is the product that linear layers are, whose columns are what is taken apart.
func isMatMul(op *ir.Op) bool {
	_, ok := ops.AsMatMul(op)
	return ok
}

// own reports whether v is a parameter of so many dims with one reader.
func own(v *ir.Value, uses map[*ir.Value][]*ir.Op, dims int) bool {
	return (v.Role == ir.Param || v.Role == ir.Buffer) && v.Op == nil && len(v.Type.Dims) == dims && v.Type.DType.IsFloat() && len(uses[v]) == 1
}

// followed reports whether all that reads v is views, and in the end slices of one of its n parts along dim each.
func followed(f *ir.Func, v *ir.Value, dim, n int, uses map[*ir.Value][]*ir.Op) bool {
	if slices.ContainsFunc(f.Results, func(r ir.Result) bool { return r.Value == v }) || len(uses[v]) == 0 {
		return false
	}
	for _, op := range uses[v] {
		to, part := through(op, dim, n)
		if to < 0 && part < 0 || to >= 0 && !followed(f, op.Out[0], to, n, uses) {
			return false
		}
	}
	return true
}

// through says what op makes of a value in n parts along dim: a value in parts along to, or one part; -1 is neither.
func through(op *ir.Op, dim, n int) (to, part int) {
	switch a := op.Attrs.(type) {
	case ops.ReshapeAttrs:
		before := ir.Product(op.In[0].Type.Dims[:dim])
		for p, size := range a.Dims {
			if ir.Product(a.Dims[:p]) == before && size > 1 {
				if size%n == 0 {
					return p, -1
				}
				break
			}
		}
	case ops.TransposeAttrs:
		return slices.Index(a.Perm, dim), -1
	case nil:
		if n <= mostAdded && (op.Def.Rules.Adds || op.Def.Rules.Multiplies) { // of an adapter, which comes as one
			return dim, -1
		}
	case ops.SliceAttrs:
		whole := op.In[0].Type.Dims[dim]
		step := 1
		if a.Steps != nil {
			step = a.Steps[dim]
		}
		switch size := whole / n; {
		case a.Sizes[dim] == whole:
			return dim, -1
		case a.Sizes[dim] == size && a.Starts[dim]%size == 0 && (step == 1 || size == 1):
			return -1, a.Starts[dim] / size
		}
	}
	return -1, -1
}

// unstacker rewrites one function.
type unstacker struct {
	c      *pass.Context
	f      *ir.Func
	found  map[string]int
	stacks map[*ir.Value][]*ir.Value // the parts of a value
	dims   map[*ir.Value]int         // along which dim they follow each other
	old    map[*ir.Value][]int       // the dims that a parameter had
	apart  map[*ir.Op]bool           // products to take apart
}

// prepare finds the products that can be taken apart in this function, too.
func (u *unstacker) prepare() {
	uses := u.f.Uses()
	for _, op := range u.f.Ops {
		if isMatMul(op) && u.found[op.In[1].Name] > 0 {
			u.apart[op] = followed(u.f, op.Out[0], len(op.Out[0].Type.Dims)-1, u.found[op.In[1].Name], uses)
		}
	}
	for u.conflict() {
	}
}

// stacked says of a value in how many parts it is, along which dim, and which products that comes from.
type stacked struct {
	n, dim   int
	products []*ir.Op
}

// conflict finds two values that are added and are in parts otherwise than each other, and leaves the products that they come
// from whole. It reports whether there were any.
func (u *unstacker) conflict() bool {
	of := map[*ir.Value]stacked{}
	for _, op := range u.f.Ops {
		if u.apart[op] {
			of[op.Out[0]] = stacked{u.found[op.In[1].Name], len(op.Out[0].Type.Dims) - 1, []*ir.Op{op}}
			continue
		}
		var all []stacked
		var products []*ir.Op
		for _, v := range op.In {
			if s, ok := of[v]; ok {
				s.dim, _ = through(op, s.dim, s.n)
				all, products = append(all, s), append(products, s.products...)
			}
		}
		if len(all) == 0 || all[0].dim < 0 {
			continue
		}
		if len(all) == 2 && (all[0].n != all[1].n || all[0].dim != all[1].dim) {
			for _, p := range products {
				delete(u.apart, p)
			}
			return true
		}
		of[op.Out[0]] = stacked{all[0].n, all[0].dim, products}
	}
	return false
}

// params gives the parameters their new dims.
func (u *unstacker) params() {
	transposed := map[*ir.Value]bool{}
	for _, op := range u.f.Ops {
		if isMatMul(op) {
			transposed[op.In[1]] = op.Attrs.(ops.MatMulAttrs).TransB
		}
	}
	for _, p := range u.f.Params {
		n := u.found[p.Name]
		if n == 0 {
			continue
		}
		d := p.Type.Dims
		dims := []int{n, d[0] / n}
		if len(d) == 2 && transposed[p] {
			dims = append(dims, d[1])
		} else if len(d) == 2 {
			dims = []int{d[0], n, d[1] / n}
		}
		u.old[p] = d
		u.c.SetFileDims(p.Name, d)
		p.Type.Dims = dims
		if p.Init != nil {
			t := *p.Init
			t.Type.Dims = dims
			p.Init = &t
		}
	}
}

func (u *unstacker) op(b *ir.Builder, op *ir.Op) []*ir.Value {
	for i, v := range op.In {
		if u.old[v] == nil {
			continue
		}
		if i == 1 && u.apart[op] {
			u.product(b, op)
			return []*ir.Value{nil}
		}
		in := slices.Clone(op.In)
		for k, w := range in {
			if d := u.old[w]; d != nil {
				in[k] = ops.Reshape(b, w, d)
			}
		}
		return b.EmitN(op.Def, op.Attrs, in...)
	}
	if slices.ContainsFunc(op.In, func(v *ir.Value) bool { return u.stacks[v] != nil }) {
		if op.Attrs == nil {
			return u.added(b, op)
		}
		return u.view(b, op)
	}
	return u.heads(b, op)
}

// product makes one product of each part.
func (u *unstacker) product(b *ir.Builder, op *ir.Op) {
	w, a, n := op.In[1], op.Attrs.(ops.MatMulAttrs), u.found[op.In[1].Name]
	dim := 1
	if a.TransB {
		dim = 0
	}
	var list []*ir.Value
	for i := range n {
		part := ops.SliceDim(b, w, dim, i, 1)
		part = ops.Reshape(b, part, slices.Delete(slices.Clone(part.Type.Dims), dim, dim+1))
		var bias *ir.Value
		if len(op.In) > 2 && op.In[2] != nil {
			bias = ops.Reshape(b, ops.SliceDim(b, op.In[2], 0, i, 1), op.In[2].Type.Dims[1:])
		}
		list = append(list, b.Rename(ops.MatMulBias(b, op.In[0], part, bias, a.TransA, a.TransB), op.Out[0].Name))
	}
	u.stacks[op.Out[0]], u.dims[op.Out[0]] = list, len(op.Out[0].Type.Dims)-1
}

// view makes of each part of a value what op makes of the whole, or of one part the slice that op is.
func (u *unstacker) view(b *ir.Builder, op *ir.Op) []*ir.Value {
	list, dim := u.stacks[op.In[0]], u.dims[op.In[0]]
	to, part := through(op, dim, len(list))
	if part >= 0 {
		a := op.Attrs.(ops.SliceAttrs)
		starts, sizes := slices.Clone(a.Starts), slices.Clone(a.Sizes)
		starts[dim] = 0
		return []*ir.Value{ops.Slice(b, list[part], starts, sizes, a.Steps)}
	}
	var out []*ir.Value
	for _, v := range list {
		switch a := op.Attrs.(type) {
		case ops.ReshapeAttrs:
			dims := slices.Clone(a.Dims)
			dims[to] /= len(list)
			out = append(out, ops.Reshape(b, v, dims))
		case ops.TransposeAttrs:
			out = append(out, ops.Transpose(b, v, a.Perm))
		case ops.SliceAttrs:
			sizes := slices.Clone(a.Sizes)
			sizes[dim] = v.Type.Dims[dim]
			out = append(out, ops.Slice(b, v, a.Starts, sizes, a.Steps))
		}
	}
	u.stacks[op.Out[0]], u.dims[op.Out[0]] = out, to
	return []*ir.Value{nil}
}

// added makes the parts of a sum or product of a value in parts and another.
func (u *unstacker) added(b *ir.Builder, op *ir.Op) []*ir.Value {
	first := op.In[0]
	if u.stacks[first] == nil {
		first = op.In[1]
	}
	dim, n := u.dims[first], len(u.stacks[first])
	size := op.Out[0].Type.Dims[dim] / n
	var out []*ir.Value
	for i := range n {
		in := slices.Clone(op.In)
		for k, v := range in {
			if list := u.stacks[v]; list != nil {
				in[k] = list[i]
			} else {
				in[k] = ops.SliceDim(b, v, dim, i*size, size)
			}
		}
		out = append(out, b.Emit(op.Def, nil, in...))
	}
	u.stacks[op.Out[0]], u.dims[op.Out[0]] = out, dim
	return []*ir.Value{nil}
}

// heads repeats the heads of keys and values where the heads of the queries divide over tp and theirs do not.
func (u *unstacker) heads(b *ir.Builder, op *ir.Op) []*ir.Value {
	if op.Def != ops.AttentionDef { // the one op with heads of two numbers
		return nil
	}
	a, tp, dim := op.Attrs.(ops.AttentionAttrs), u.c.Opt.TP, 1
	if a.Layout == "bshd" {
		dim = 2
	}
	queries, keys := op.In[0].Type.Dims[dim], op.In[1].Type.Dims[dim]
	if queries%tp != 0 && u.f.Name == abi.FuncStep {
		u.c.Remark(op.Out[0], "has %s, which cannot be divided over tp=%d: attention runs whole on every rank", printable.Count(queries, "head"), tp)
	}
	if queries%tp != 0 || keys%tp == 0 {
		return nil
	}
	n := queries / keys
	for k := 2; k < n; k++ {
		if keys*k%tp == 0 && queries%(keys*k) == 0 {
			n = k
			break
		}
	}
	if u.f.Name == abi.FuncStep {
		u.c.Remark(op.In[1], "has %s of keys, which cannot be divided over tp=%d: each is repeated %d times, for the ranks whose queries read it", printable.Count(keys, "head"), tp, n)
	}
	in := slices.Clone(op.In)
	for i := 1; i <= 2; i++ {
		d := in[i].Type.Dims
		one := slices.Insert(slices.Clone(d), dim+1, 1)
		wide := slices.Clone(one)
		wide[dim+1] = n
		whole := slices.Clone(d)
		whole[dim] *= n
		in[i] = ops.Reshape(b, ops.Expand(b, ops.Reshape(b, in[i], one), wide), whole)
	}
	return b.EmitN(op.Def, op.Attrs, in...)
}
