// Package epilogue has matrix products do what follows them: activations, their derivatives in the backward, sums with a residual
// or with what earlier micro-batches gave, and the gradient of a bias, which is a sum over what the product reads anyway. A product
// of a GPU ends with its result in registers, where all that costs nothing, while a kernel of its own would read and write the
// tensor again. Only for targets that have such products (target.Traits).
//
// # Design
//
// Each rule finds products and the op after them that they can take over (match), all of a function at once; then one walk
// replaces the products by matmul_epilogue ops, in their place, and the ops taken over by its results. What a product needs besides
// must exist where it stands. Ops between, which only reshape, are views.
//
// Large products in tensor cores are best left to cuBLASLt, which has the tanh form of GELU but neither the exact one nor a
// derivative of ReLU: those stay kernels of their own there (abi.Product, and Options.Compute).
package epilogue

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Run rewrites every function.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	if !c.Traits().Epilogues {
		return nil
	}
	for _, f := range c.Module.Funcs {
		for _, rule := range []func(*finder, *ir.Op) *match{activation, derivative, addend, sums} {
			apply(c, f, rule)
		}
	}
	return nil
}

// match is a product that takes over an op.
type match struct {
	product *ir.Op
	op      *ir.Op // what it takes over
	part    int    // the result of the new op that stands for that of op
	attrs   func(a *ops.MatMulEpilogueAttrs)
	add     *ir.Value
	aux     *ir.Value
	why     string
}

// finder knows a function's ops.
type finder struct {
	pos     map[*ir.Op]int
	uses    map[*ir.Value]int      // operands and results of the function that are it
	first   map[*ir.Value]int      // the position of the first op that reads it
	readers map[*ir.Value][]*ir.Op // products that read it
	tensor  bool                   // products of f32 run in tensor cores too
	own     int64                  // up to how many operations the target's own kernels do a product in tensor cores well
}

func newFinder(c *pass.Context, f *ir.Func) *finder {
	fi := &finder{pos: map[*ir.Op]int{}, uses: map[*ir.Value]int{}, first: map[*ir.Value]int{}, readers: map[*ir.Value][]*ir.Op{},
		tensor: c.Opt.Compute() == "tf32", own: c.Traits().OwnProduct}
	for i, op := range f.Ops {
		fi.pos[op] = i
		for k, v := range op.In {
			if fi.uses[v]++; fi.uses[v] == 1 {
				fi.first[v] = i
			}
			if isProduct(op) && k < 2 {
				fi.readers[v] = append(fi.readers[v], op)
			}
		}
	}
	for _, r := range f.Results {
		fi.uses[r.Value]++
	}
	return fi
}

// from is the product, through reshapes, that v is the result of; alone reports whether nothing else reads it on the way.
func (fi *finder) from(v *ir.Value) (product *ir.Op, alone bool) {
	alone = true
	for v.Op != nil {
		alone = alone && fi.uses[v] == 1
		if v.Moved() == ir.Keeps {
			v = v.Op.In[0]
			continue
		}
		if v == v.Op.Out[0] && isProduct(v.Op) {
			return v.Op, alone
		}
		break
	}
	return nil, false
}

// isProduct reports whether op is a product that kernels of GPUs do as it is.
func isProduct(op *ir.Op) bool {
	if !isMatMul(op) {
		return false
	}
	d := op.In[0].Type.DType
	return (d == dtype.F32 || d == dtype.BF16 || d == dtype.F16) && op.Out[0].Type.Elems() > 0 && op.In[0].Type.Elems() > 0
}

// isMatMul reports whether op is a product, with an epilogue or without: the two that matmul_epilogue can stand for.
func isMatMul(op *ir.Op) bool {
	_, ok := ops.AsMatMulEpilogue(op)
	return ok
}

// ours reports whether gtc's own kernel does p well, so that the end may be one that the library lacks.
func (fi *finder) ours(p *ir.Op) bool {
	return p.In[0].Type.DType == dtype.F32 && !fi.tensor || cost.Flops(p) <= fi.own
}

// before reports whether v exists where op stands.
func (fi *finder) before(v *ir.Value, op *ir.Op) bool {
	return v.Op == nil || fi.pos[v.Op] < fi.pos[op]
}

// attrs are those of a product, as matmul_epilogue has them.
func attrs(op *ir.Op) ops.MatMulEpilogueAttrs {
	a, _ := ops.AsMatMulEpilogue(op)
	return a
}

// operand is operand i of a product; nil where it has none.
func operand(op *ir.Op, i int) *ir.Value {
	if i < len(op.In) {
		return op.In[i]
	}
	return nil
}

// apply finds the matches of a rule in f and rewrites them.
func apply(c *pass.Context, f *ir.Func, rule func(*finder, *ir.Op) *match) {
	fi := newFinder(c, f)
	byProduct, byOp := map[*ir.Op]*match{}, map[*ir.Op]*match{}
	for _, op := range f.Ops {
		if m := rule(fi, op); m != nil && byProduct[m.product] == nil && c.May(op.Out[0], "%s is made by the product before it", op.Def.Name) {
			byProduct[m.product], byOp[op] = m, m
		}
	}
	if len(byOp) == 0 {
		return
	}
	made := map[*match][]*ir.Value{}
	now := map[*ir.Value]*ir.Value{} // what stands for values that other matches replaced
	c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if m := byProduct[op]; m != nil {
			made[m] = m.build(b, op, now)
			out := m.replaced(op, made[m])
			for i, v := range op.Out {
				now[v] = out[i]
			}
			return out
		}
		m := byOp[op]
		if m == nil {
			return nil
		}
		v := ops.Reshape(b, made[m][m.part], op.Out[0].Type.Dims)
		c.Remark(op.Out[0], "is made by the product before it: %s", m.why)
		if v == made[m][m.part] {
			pass.TakeName(b, v, op.Out[0])
		}
		now[op.Out[0]] = v
		return []*ir.Value{v}
	})
}

// build makes the new product.
func (m *match) build(b *ir.Builder, op *ir.Op, now map[*ir.Value]*ir.Value) []*ir.Value {
	a := attrs(op)
	m.attrs(&a)
	dims := op.Out[0].Type.Dims
	add, aux := operand(op, 3), operand(op, 4)
	there := func(v *ir.Value) *ir.Value {
		if w := now[v]; w != nil {
			v = w
		}
		return ops.Reshape(b, v, dims)
	}
	if m.add != nil {
		add = there(m.add)
	}
	if m.aux != nil {
		aux = there(m.aux)
	}
	return ops.MatMulEpilogue(b, a, [5]*ir.Value{op.In[0], op.In[1], operand(op, 2), add, aux})
}

// replaced are the new values in place of the results of the old product: nil where only the op that is taken over read one.
func (m *match) replaced(op *ir.Op, made []*ir.Value) []*ir.Value {
	out := make([]*ir.Value, len(op.Out))
	a := attrs(made[0].Op)
	old := attrs(op)
	next := 0
	if m.part == 0 { // the product's own result is no longer what it was
		if a.Keep && !old.Keep {
			out[0] = made[1]
		}
	} else {
		out[0] = made[0]
	}
	for i := 1; i < len(op.Out); i++ {
		next++
		out[i] = made[next]
	}
	return out
}
