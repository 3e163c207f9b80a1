package recognize

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
)

// hidden is the score at or below which a key is not seen: exp of it is 0 beside any visible key.
const hidden = -1e4

// maskTerm is one thing done to the scores before the softmax: value is added, or where cond is keep the score
// stays and elsewhere it becomes neg.
type maskTerm struct {
	value    *ir.Value // added; nil for a selection
	negate   bool      // value is subtracted
	cond     *ir.Value // bool
	keep     bool
	neg      float64
	infinite bool // made of zeros and hidden scores only: scaling does not change it
}

// maskStep takes the outermost mask off v: what is under it and the term, or why it does not fit. All are
// empty when v is no masking of scores.
func (m *matcher) maskStep(v *ir.Value) (under *ir.Value, t *maskTerm, why string) {
	if v.Op == nil {
		return nil, nil, ""
	}
	op := v.Op
	switch op.Def {
	case ops.AddDef, ops.SubDef:
		under, other := op.In[0], op.In[1]
		if !leadsToScores(under, 0) {
			if under, other = other, under; op.Def == ops.SubDef || !leadsToScores(under, 0) {
				return nil, nil, ""
			}
		}
		if m.trained[other] {
			return nil, nil, "the mask %" + other.Name + " depends on a trained parameter: its gradient needs every probability, which the parts keep"
		}
		t = &maskTerm{value: unexpand(other), negate: op.Def == ops.SubDef}
		t.infinite = m.hides(t.value)
		return under, t, ""
	case ops.WhereDef:
		for i, keep := range []bool{true, false} {
			under, other := op.In[1+i], op.In[2-i]
			neg, ok := algebra.Uniform(other)
			if !ok || !leadsToScores(under, 0) {
				continue
			}
			if neg > hidden {
				return nil, nil, "masked scores become a number that does not hide them"
			}
			return under, &maskTerm{cond: unexpand(op.In[0]), keep: keep, neg: neg, infinite: true}, ""
		}
	}
	return nil, nil, ""
}

// hides reports whether v is known to be made of zeros and hidden scores only.
func (m *matcher) hides(v *ir.Value) bool {
	if _, looked := m.hiding[v]; !looked {
		c := evaluate(v)
		m.hiding[v] = c != nil && !slices.ContainsFunc(c.F, func(x float64) bool { return x != 0 && x > hidden })
	}
	return m.hiding[v]
}

// maxChain bounds how many scales and masks may lie between softmax and scores.
const maxChain = 8

// leadsToScores reports whether v is a product seen through constant scales and masks.
func leadsToScores(v *ir.Value, depth int) bool {
	if v.Op == nil || depth > maxChain {
		return false
	}
	scale := 1.0
	if w := stripScale(v, &scale); w != v {
		return leadsToScores(w, depth+1)
	}
	switch in := v.Op.In; v.Op.Def {
	case ops.MatMulDef:
		return len(in[0].Type.Dims) == len(in[1].Type.Dims)
	case ops.AddDef:
		return leadsToScores(in[0], depth+1) || leadsToScores(in[1], depth+1)
	case ops.SubDef:
		return leadsToScores(in[0], depth+1)
	case ops.WhereDef:
		return leadsToScores(in[1], depth+1) || leadsToScores(in[2], depth+1)
	}
	return false
}

// additive is the term as a value to add, of as many dims as the scores but not repeated.
func (t *maskTerm) additive(b *ir.Builder, like *ir.Value) *ir.Value {
	if t.value != nil {
		if t.negate {
			return ops.Neg(b, t.value)
		}
		return t.value
	}
	ty := t.cond.Type.With(like.Type.DType)
	yes, no := ops.Full(b, ty, 0), ops.Full(b, ty, t.neg)
	if !t.keep {
		yes, no = no, yes
	}
	return ops.Where(b, t.cond, yes, no)
}

// constant is the term's numbers when they are known now, else nil.
func (t *maskTerm) constant() *ir.Array {
	from := t.value
	if from == nil {
		from = t.cond
	}
	c := evaluate(from)
	if c == nil {
		return nil
	}
	out := &ir.Array{Type: from.Type, F: make([]float64, from.Type.Elems())}
	for i := range out.F {
		switch {
		case t.value == nil && (c.I[i] != 0) != t.keep:
			out.F[i] = t.neg
		case t.value == nil:
		case t.negate:
			out.F[i] = -c.F[i]
		default:
			out.F[i] = c.F[i]
		}
	}
	return out
}

// known is what the terms of a mask that are known now come to.
type known struct {
	terms  []maskTerm
	square bool // it is the causal pattern of causal queries and keys, of the last window keys only when that is not 0
	causal int  // sequence length
	window int
	add    *ir.Tensor // nil when nothing is masked
	why    string     // it cannot be joined
}

// join is the known part of terms; layers have their mask in common, which is looked at once. n is the number of dims.
func (m *matcher) join(terms []*maskTerm, n int, d dtype.DType) *known {
	for _, k := range m.masks {
		if (k.add == nil || k.add.Type.DType == d) && slices.EqualFunc(k.terms, terms, func(x maskTerm, y *maskTerm) bool { return x == *y }) {
			return k
		}
	}
	k := &known{}
	m.masks = append(m.masks, k)
	var sum *ir.Array
	for _, t := range terms {
		k.terms = append(k.terms, *t)
		a := t.constant()
		if sum == nil {
			sum = a
		} else if sum = addArrays(sum, a); sum == nil {
			k.why = "its masks are too large to join"
			return k
		}
	}
	sum = shrink(sum)
	dims := sum.Type.Dims
	switch {
	case !slices.ContainsFunc(sum.F, func(x float64) bool { return x != 0 }):
	case ir.Product(dims) == dims[n-2]*dims[n-1]:
		if w, ok := causalWindow(sum.F, dims[n-2], dims[n-1]); ok {
			k.square, k.causal, k.window = true, dims[n-1], w
		}
		fallthrough
	default:
		sum.Type.DType = d
		k.add = sum.Tensor()
	}
	return k
}

// mask joins the terms into attention's mask operand, 4 dims or nil, or sets the causal flag and the window; n is the number
// of dims of the scores.
func (m *matcher) mask(b *ir.Builder, c *candidate, n int, a *ops.AttentionAttrs) (mask *ir.Value, why string) {
	var fixed, running []*maskTerm
	for _, t := range c.terms {
		if m.isKnown(t) {
			fixed = append(fixed, t)
		} else {
			running = append(running, t)
		}
	}
	if fixed != nil {
		k := m.join(fixed, n, c.q.Type.DType)
		switch {
		case k.why != "":
			return nil, k.why
		case k.square && k.causal == c.k.Type.Dims[n-2]:
			a.Causal, a.Window = true, k.window
		case k.add != nil:
			mask = ops.Const(b, k.add)
		}
	}
	for _, t := range running {
		v := t.additive(b, c.q)
		if mask == nil {
			mask = v
		} else {
			x, y := ops.Broadcast2(b, mask, v)
			mask = ops.Add(b, x, y)
		}
	}
	if mask != nil && n == 3 {
		d := mask.Type.Dims
		mask = ops.Reshape(b, mask, []int{d[0], 1, d[1], d[2]})
	}
	return mask, ""
}

// isKnown reports whether the term's numbers are known now.
func (m *matcher) isKnown(t *maskTerm) bool {
	v := t.value
	if v == nil {
		v = t.cond
	}
	if _, looked := m.fixed[v]; !looked {
		m.fixed[v] = evaluate(v) != nil
	}
	return m.fixed[v]
}

// causalWindow reports whether f[n,n] is 0 for the last w columns up to the diagonal and hides everything else; w is 0 where
// that is every column before it.
func causalWindow(f []float64, rows, cols int) (w int, ok bool) {
	if rows != cols || rows < 2 || len(f) != rows*cols {
		return 0, false
	}
	for w < cols && f[len(f)-1-w] == 0 {
		w++
	}
	for row := range rows {
		for col, x := range f[row*cols : (row+1)*cols] {
			seen := col <= row && col > row-w
			if !seen && !(x <= hidden) || seen && x != 0 {
				return 0, false
			}
		}
	}
	if w == cols {
		return 0, true
	}
	return w, w > 0
}

// shrink gives dims along which a does not change the size 1.
func shrink(a *ir.Array) *ir.Array {
	for d, n := range a.Type.Dims {
		inner := ir.Product(a.Type.Dims[d+1:])
		same := n > 1
		for i := 0; same && i < len(a.F); i++ {
			first := i - (i/inner)%n*inner
			same = a.F[i] == a.F[first]
		}
		if !same {
			continue
		}
		dims := slices.Clone(a.Type.Dims)
		dims[d] = 1
		var f []float64
		for i := 0; i < len(a.F); i += n * inner {
			f = append(f, a.F[i:i+inner]...)
		}
		a = &ir.Array{Type: ir.T(a.Type.DType, dims...), F: f}
	}
	return a
}

// addArrays adds two arrays of as many dims, repeating dims of size 1; nil when the sum is larger than maxKnown.
func addArrays(x, y *ir.Array) *ir.Array {
	dims, ok := ops.BroadcastDims(x.Type.Dims, y.Type.Dims)
	if !ok || ir.Product(dims) > maxKnown {
		return nil
	}
	out := ir.NewArray(ir.T(x.Type.DType, dims...))
	at := func(a *ir.Array, i int) float64 {
		pos, stride := 0, 1
		for d := len(dims) - 1; d >= 0; d-- {
			if n := a.Type.Dims[d]; n > 1 {
				pos += i % dims[d] * stride
				stride *= n
			}
			i /= dims[d]
		}
		return a.F[pos]
	}
	for i := range out.F {
		out.F[i] = at(x, i) + at(y, i)
	}
	return out
}

// maxKnown bounds the elements of a mask that is evaluated at compile time (a 4096 by 4096 mask).
const maxKnown = 1 << 24

// evaluate computes v when it depends on constants only, else nil.
func evaluate(v *ir.Value) *ir.Array {
	budget := 64
	return evaluateOp(v, &budget)
}

func evaluateOp(v *ir.Value, budget *int) *ir.Array {
	*budget--
	if v.Op == nil || *budget < 0 || v.Type.Elems() > maxKnown || len(v.Op.Out) != 1 {
		return nil
	}
	if v.Op.Def == ops.ConstDef {
		t := v.Op.Attrs.(ops.ConstAttrs).Value
		if len(t.Data) != t.Type.Bytes() {
			return nil
		}
		return t.Array()
	}
	r := &v.Op.Def.Rules
	if r.Eval == nil || r.Collective != "" || len(v.Op.In) == 0 && v.Op.Def != ops.IotaDef {
		return nil
	}
	in := make([]*ir.Array, len(v.Op.In))
	for i, x := range v.Op.In {
		if x == nil {
			continue
		}
		if in[i] = evaluateOp(x, budget); in[i] == nil {
			return nil
		}
	}
	return r.Eval(v.Op, in)[0]
}
