package ops

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// Scaled dot-product attention and its gradient.
var (
	AttentionDef     = ir.NewOp("attention")
	AttentionGradDef = ir.NewOp("attention_grad")
)

// AttentionAttrs: Causal lets query i see keys up to i+(Sk-Sq), which aligns the last query with the last key.
// Scale multiplies the products of queries and keys. Layout is "bhsd" (or "") or "bshd": the order of batch, head,
// sequence and feature in q, k, v and out. Window w > 0, of causal attention only, hides all but the last w keys that
// Causal lets a query see, as sliding-window models do. P in [0,1) and Seed are dropout's (DropoutAttrs), of the
// probabilities.
type AttentionAttrs struct {
	Causal bool
	Scale  float64
	Layout string
	Window int
	P      float64
	Seed   int
}

// Attention gives out = softmax(Scale*q.k' + mask).v and lse[B,H,Sq], the logarithm of the softmax's denominator.
// q is [B,H,Sq,D], k [B,Hkv,Sk,D], v [B,Hkv,Sk,Dv], out [B,H,Sq,Dv] (in Layout's order); query head h reads key head
// h/(H/Hkv). mask, which may be nil, is added to the scores: [B|1,H|1,Sq|1,Sk] in that order (size 1 in the last
// place is expanded).
// A query that sees no key at all gives 0 and an lse of minus infinity.
func Attention(b *ir.Builder, a AttentionAttrs, q, k, v, mask *ir.Value) (out, lse *ir.Value) {
	if mask != nil && len(mask.Type.Dims) == 4 && len(k.Type.Dims) == 4 && mask.Type.Dims[3] == 1 {
		mask = Expand(b, mask, with(mask.Type.Dims, 3, k.Type.Dims[a.seq()])) // kernels read the mask by rows
	}
	res := b.EmitN(AttentionDef, a, q, k, v, mask)
	return res[0], res[1]
}

// AttentionDropout is Attention with probabilities that dropout has thinned by a.P: those of element (b,h,i,j) are the
// same as Dropout with a.Seed and counter (an i64 scalar) would thin it in a tensor [B,H,Sq,Sk]. Its operands are q, k, v
// and mask (or nil).
func AttentionDropout(b *ir.Builder, a AttentionAttrs, counter *ir.Value, operands ...*ir.Value) (out, lse *ir.Value) {
	q, k, v, mask := operands[0], operands[1], operands[2], operands[3]
	if mask != nil && len(mask.Type.Dims) == 4 && mask.Type.Dims[3] == 1 {
		mask = Expand(b, mask, with(mask.Type.Dims, 3, k.Type.Dims[a.seq()]))
	}
	h := a.head()
	res := b.EmitN(AttentionDef, a, q, k, v, mask, counter, positions(b, []int{q.Type.Dims[0], q.Type.Dims[h]}))
	return res[0], res[1]
}

// AttentionGrad gives the gradients of q, k and v. Its operands are q, k, v, mask (or nil), out, lse, dout; with dropout
// then the counter and the numbers of heads, i64[B,H], as the forward op has them.
func AttentionGrad(b *ir.Builder, a AttentionAttrs, operands ...*ir.Value) (dq, dk, dv *ir.Value) {
	res := b.EmitN(AttentionGradDef, a, operands...)
	return res[0], res[1], res[2]
}

// attnDims are the sizes of one attention: batch, query heads, key heads, sequence lengths, feature sizes.
type attnDims struct{ B, H, Hkv, Sq, Sk, D, Dv int }

// head and seq are the positions of the head and sequence dimensions in q, k, v and out.
func (a AttentionAttrs) head() int {
	if a.Layout == "bshd" {
		return 2
	}
	return 1
}

func (a AttentionAttrs) seq() int { return 3 - a.head() }

// dims puts sizes in layout order.
func (a AttentionAttrs) dims(b, h, s, d int) []int {
	if a.Layout == "bshd" {
		return []int{b, s, h, d}
	}
	return []int{b, h, s, d}
}

// attnOf reads and checks the sizes of either op.
func attnOf(op *ir.Op) (d attnDims, err error) {
	a := op.Attrs.(AttentionAttrs)
	if a.Layout != "" && a.Layout != "bhsd" && a.Layout != "bshd" {
		return d, fmt.Errorf("layout is %q, but must be bhsd or bshd", a.Layout)
	}
	floats := []int{0, 1, 2, 3, 4, 6}
	if op.Def == AttentionDef {
		floats = floats[:4]
	}
	if err := sameFloat(op, floats...); err != nil {
		return d, err
	}
	for i := range 3 {
		if n := len(op.In[i].Type.Dims); n != 4 {
			return d, fmt.Errorf("operand %d has %d dimensions, but must have 4", i, n)
		}
	}
	q, k, v := op.In[0].Type.Dims, op.In[1].Type.Dims, op.In[2].Type.Dims
	d = attnDims{q[0], q[a.head()], k[a.head()], q[a.seq()], k[a.seq()], q[3], v[3]}
	if d.Hkv < 1 || d.H%d.Hkv != 0 {
		return d, fmt.Errorf("operand 0 has %d heads, not a multiple of operand 1's %d", d.H, d.Hkv)
	}
	if a.Window < 0 || a.Window > 0 && !a.Causal {
		return d, fmt.Errorf("window is %d and causal %v: only causal attention has a window, which must not be negative", a.Window, a.Causal)
	}
	if !(a.P >= 0 && a.P < 1) {
		return d, fmt.Errorf("p is %g, but must be in [0,1)", a.P)
	}
	if a.Causal && d.Sk < d.Sq {
		return d, fmt.Errorf("causal attention of %d queries needs as many keys, but has %d", d.Sq, d.Sk)
	}
	t := op.In[0].Type.DType
	want := []ir.Type{
		op.In[0].Type, ir.T(t, a.dims(d.B, d.Hkv, d.Sk, d.D)...), ir.T(t, a.dims(d.B, d.Hkv, d.Sk, d.Dv)...), {},
		ir.T(t, a.dims(d.B, d.H, d.Sq, d.Dv)...), ir.T(sumType(t), d.B, d.H, d.Sq), ir.T(t, a.dims(d.B, d.H, d.Sq, d.Dv)...),
	}
	for i, v := range op.In[:min(len(op.In), dropoutOperands(op))] {
		switch {
		case v == nil && i > 3:
			return d, fmt.Errorf("operand %d is missing", i)
		case v == nil:
		case i == 3:
			err = d.checkMask(v.Type.Dims)
		case !v.Type.Equal(want[i]):
			err = fmt.Errorf("operand %d is %s, but must be %s", i, v.Type, want[i])
		}
		if err != nil {
			return d, err
		}
	}
	return d, d.checkDropout(op, a)
}

// dropoutOperands is the place of the counter, before that of the heads' numbers.
func dropoutOperands(op *ir.Op) int {
	if op.Def == AttentionGradDef {
		return 7
	}
	return 4
}

func (d attnDims) checkDropout(op *ir.Op, a AttentionAttrs) error {
	at := dropoutOperands(op)
	counter, numbers := operand(op, at), operand(op, at+1)
	switch {
	case a.P == 0 && len(op.In) > at:
		return fmt.Errorf("operand %d is given, which only dropout needs, but p is 0", at)
	case a.P == 0:
		return nil
	case counter == nil || numbers == nil:
		return fmt.Errorf("operand %d, the counter, or %d, the numbers of the heads, is missing", at, at+1)
	}
	if want := ir.T(dtype.I64, d.B, d.H); !numbers.Type.Equal(want) {
		return fmt.Errorf("operand %d is %s, but must be %s", at+1, numbers.Type, want)
	}
	return checkCounter(counter, at)
}

func (d attnDims) checkMask(m []int) error {
	full := []int{d.B, d.H, d.Sq, d.Sk}
	ok := len(m) == 4
	for i := 0; ok && i < 4; i++ {
		ok = m[i] == 1 && i < 3 || m[i] == full[i]
	}
	if !ok {
		return fmt.Errorf("the mask has dims %v, but must have %v, or 1 in any place but the last", m, full)
	}
	return nil
}

func inferAttention(op *ir.Op) ([]ir.Type, error) {
	d, err := attnOf(op)
	if err != nil {
		return nil, err
	}
	t, a := op.In[0].Type.DType, op.Attrs.(AttentionAttrs)
	return []ir.Type{ir.T(t, a.dims(d.B, d.H, d.Sq, d.Dv)...), ir.T(sumType(t), d.B, d.H, d.Sq)}, nil
}

func inferAttentionGrad(op *ir.Op) ([]ir.Type, error) {
	if _, err := attnOf(op); err != nil {
		return nil, err
	}
	if len(op.In) < 7 {
		return nil, fmt.Errorf("has %d operands, but takes 7, or 9 with dropout", len(op.In))
	}
	return []ir.Type{op.In[0].Type, op.In[1].Type, op.In[2].Type}, nil
}

// attentionRule: samples and heads are independent. With fewer key heads than query heads, a query head is
// key head and member of its group, and only the former may be split.
func attentionRule(op *ir.Op) factor.Rule {
	d, err := attnOf(op)
	if err != nil {
		return factor.Rule{}
	}
	a := op.Attrs.(AttentionAttrs)
	var r ruleMaker
	b, hkv := r.add("b", d.B, factor.Free), r.add("h", d.Hkv, factor.Free)
	h := append(append(factor.Dim{}, hkv...), r.add("g", d.H/d.Hkv, factor.Blocked)...)
	sq, sk := r.add("i", d.Sq, factor.Blocked), r.add("j", d.Sk, factor.Blocked)
	qk, dv := r.add("d", d.D, factor.Blocked), r.add("e", d.Dv, factor.Blocked)
	order := func(h, s, d factor.Dim) []factor.Dim {
		if a.Layout == "bshd" {
			return []factor.Dim{b, s, h, d}
		}
		return []factor.Dim{b, h, s, d}
	}
	q, k, v := order(h, sq, qk), order(hkv, sk, qk), order(hkv, sk, dv)
	out, lse := order(h, sq, dv), []factor.Dim{b, h, sq}
	in := [][]factor.Dim{q, k, v, nil, out, lse, out}[:min(len(op.In), dropoutOperands(op))]
	if m := operand(op, 3); m != nil {
		in[3] = []factor.Dim{b, h, sq, sk}
		for i, n := range m.Type.Dims {
			if n == 1 {
				in[3][i] = nil
			}
		}
	}
	if len(op.In) > len(in) {
		in = append(in, nil, []factor.Dim{b, h})
	}
	if op.Def == AttentionGradDef {
		return r.rule(in, q, k, v)
	}
	return r.rule(in, out, lse)
}
