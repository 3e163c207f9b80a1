package ops

import (
	"math"
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// The binary elementwise ops.
var (
	AddDef     = ir.NewOp("add")
	SubDef     = ir.NewOp("sub")
	MulDef     = ir.NewOp("mul")
	DivDef     = ir.NewOp("div")
	PowDef     = ir.NewOp("pow")
	MaximumDef = ir.NewOp("maximum")
	MinimumDef = ir.NewOp("minimum")
	ModDef     = ir.NewOp("mod")
	AndDef     = ir.NewOp("and")
	OrDef      = ir.NewOp("or")
	XorDef     = ir.NewOp("xor")
	EqDef      = ir.NewOp("eq")
	NeDef      = ir.NewOp("ne")
	LtDef      = ir.NewOp("lt")
	LeDef      = ir.NewOp("le")
	GtDef      = ir.NewOp("gt")
	GeDef      = ir.NewOp("ge")
)

// ModAttrs: Fmod gives the result the sign of the dividend (C's fmod) instead of the divisor's (Python's %).
type ModAttrs struct{ Fmod bool }

// Add is x + y, of numbers of equal type and dims.
func Add(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(AddDef, nil, x, y) }

// Sub is x - y, of numbers of equal type and dims.
func Sub(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(SubDef, nil, x, y) }

// Mul is x * y, of numbers of equal type and dims.
func Mul(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(MulDef, nil, x, y) }

// Div is x / y, of numbers of equal type and dims; integers truncate towards zero.
func Div(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(DivDef, nil, x, y) }

// Pow is x to the y, of floats of equal type and dims.
func Pow(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(PowDef, nil, x, y) }

// PowScalar is x to the v.
func PowScalar(b *ir.Builder, x *ir.Value, v float64) *ir.Value {
	return Pow(b, x, ScalarLike(b, x, v))
}

// Maximum is the greater of x and y, NaN if either is. Ties share the gradient.
func Maximum(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(MaximumDef, nil, x, y) }

// Minimum is the lesser of x and y, NaN if either is. Ties share the gradient.
func Minimum(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(MinimumDef, nil, x, y) }

// Mod is the remainder of x/y with the sign of y.
func Mod(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(ModDef, ModAttrs{}, x, y) }

// FMod is the remainder of x/y with the sign of x.
func FMod(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(ModDef, ModAttrs{true}, x, y) }

// And is logical, of bools, or bit by bit, of integers.
func And(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(AndDef, nil, x, y) }

// Or is logical, of bools, or bit by bit, of integers.
func Or(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(OrDef, nil, x, y) }

// Xor is logical, of bools, or bit by bit, of integers.
func Xor(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(XorDef, nil, x, y) }

// Eq is x == y as bool, of equal types.
func Eq(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(EqDef, nil, x, y) }

// Ne is x != y as bool, of equal types.
func Ne(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(NeDef, nil, x, y) }

// Lt is x < y as bool, of numbers of equal type.
func Lt(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(LtDef, nil, x, y) }

// Le is x <= y as bool, of numbers of equal type.
func Le(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(LeDef, nil, x, y) }

// Gt is x > y as bool, of numbers of equal type.
func Gt(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(GtDef, nil, x, y) }

// Ge is x >= y as bool, of numbers of equal type.
func Ge(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(GeDef, nil, x, y) }

// binU lifts a binary function of u64.
func binU(f func(x, y uint64) uint64) func(any, []uint64) uint64 {
	return func(_ any, x []uint64) uint64 { return f(x[0], x[1]) }
}

func init() {
	pointwise(AddDef, pw{doc: "x + y", facts: ir.Facts{Linear: linear([]int{0, 1}), Adds: true},
		vjp: func(_ *ir.Builder, _ *ir.Op, dy *ir.Value) []*ir.Value { return []*ir.Value{dy, dy} }})
	pointwise(SubDef, pw{doc: "x - y", facts: ir.Facts{Linear: linear([]int{0, 1})},
		vjp: func(b *ir.Builder, _ *ir.Op, dy *ir.Value) []*ir.Value { return []*ir.Value{dy, Neg(b, dy)} }})
	pointwise(MulDef, pw{doc: "x * y", facts: ir.Facts{Linear: linear([]int{0}, []int{1}), Multiplies: true},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			return []*ir.Value{Mul(b, dy, op.In[1]), Mul(b, dy, op.In[0])}
		}})
	pointwise(DivDef, pw{doc: "x / y; integers truncate towards zero", fill: awayFrom(0), facts: ir.Facts{Linear: ofFloats([]int{0}), Zero: [][]int{{0}}, Divides: true},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			dx := Div(b, dy, op.In[1])
			return []*ir.Value{dx, Neg(b, Mul(b, dx, op.Out[0]))}
		}})
	pointwise(PowDef, pw{doc: "x to the y", takes: floats, fill: positive, vjp: powVJP})
	pointwise(MaximumDef, pw{doc: "the greater of x and y", kir: "max", vjp: chooseVJP(Gt)})
	pointwise(MinimumDef, pw{doc: "the lesser of x and y", kir: "min", vjp: chooseVJP(Lt)})
	pointwise(ModDef, pw{n: 2, doc: "remainder of x/y", takes: numbers, attrs: ModAttrs{}, fill: offMultiples,
		try: []any{ModAttrs{}, ModAttrs{true}}, f: modF, i: modI, u: binU(modU), expr: modExpr, vjp: modVJP})
	bits := func(d *ir.Def, doc string, facts ir.Facts) {
		pointwise(d, pw{doc: doc + "; of integers, bit by bit", noGrad: "integer or bool result", facts: facts})
	}
	bits(AndDef, "logical and", ir.Facts{Zero: [][]int{{0}, {1}}})
	bits(OrDef, "logical or", ir.Facts{})
	bits(XorDef, "logical exclusive or", ir.Facts{})
	compare := func(d *ir.Def, doc string) { pointwise(d, pw{doc: doc + ", as bool", noGrad: "bool result"}) }
	compare(EqDef, "x == y")
	compare(NeDef, "x != y")
	compare(LtDef, "x < y")
	compare(LeDef, "x <= y")
	compare(GtDef, "x > y")
	compare(GeDef, "x >= y")
}

func modU(x, y uint64) uint64 {
	if y == 0 {
		return 0
	}
	return x % y
}

// powVJP: d/dx = y x^(y-1), 0 where y is 0; d/dy = x^y log x, 0 where x is 0 and y is not negative (as PyTorch).
func powVJP(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
	x, y := op.In[0], op.In[1]
	zero := ScalarLike(b, x, 0)
	dx := Mul(b, dy, Mul(b, y, Pow(b, x, AddScalar(b, y, -1))))
	dx = Where(b, Eq(b, y, zero), zero, dx)
	dz := Mul(b, dy, Mul(b, op.Out[0], Log(b, x)))
	dz = Where(b, And(b, Eq(b, x, zero), Ge(b, y, zero)), zero, dz)
	return []*ir.Value{dx, dz}
}

// chooseVJP gives the gradient to the operand that wins; ties share it.
func chooseVJP(wins func(b *ir.Builder, x, y *ir.Value) *ir.Value) func(*ir.Builder, *ir.Op, *ir.Value) []*ir.Value {
	return func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
		x, y := op.In[0], op.In[1]
		shared := Where(b, Eq(b, x, y), MulScalar(b, dy, 0.5), ScalarLike(b, dy, 0))
		return []*ir.Value{Where(b, wins(b, x, y), dy, shared), Where(b, wins(b, y, x), dy, shared)}
	}
}

func modF(a any, x []float64) float64 {
	r := math.Mod(x[0], x[1])
	if !a.(ModAttrs).Fmod && r != 0 && (r < 0) != (x[1] < 0) {
		r += x[1]
	}
	return r
}

func modI(a any, x []int64) int64 {
	if x[1] == 0 {
		return 0
	}
	r := x[0] % x[1]
	if !a.(ModAttrs).Fmod && r != 0 && (r < 0) != (x[1] < 0) {
		r += x[1]
	}
	return r
}

// modExpr builds Python's remainder from C's, which kir's mod is.
func modExpr(num lit, a any, x []*kir.Expr) *kir.Expr {
	r := kir.Bin("mod", x[0], x[1])
	if a.(ModAttrs).Fmod {
		return r
	}
	zero := num(0)
	wrongSign := kir.Bin("and", kir.Bin("ne", r, zero), kir.Bin("xor", kir.Bin("lt", r, zero), kir.Bin("lt", x[1], zero)))
	return kir.Select(wrongSign, kir.Bin("add", r, x[1]), r)
}

// modVJP: x - y*q with q constant.
func modVJP(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
	q := Div(b, Sub(b, op.In[0], op.Out[0]), op.In[1])
	return []*ir.Value{dy, Neg(b, Mul(b, dy, Round(b, q)))}
}

// offMultiples keeps x/y away from integers, where the remainder jumps.
func offMultiples(r *rand.Rand, in []*ir.Array) {
	for i := range in[0].F {
		y := 0.5 + r.Float64()
		in[1].F[i] = y * float64(1-2*r.IntN(2))
		in[0].F[i] = y * (float64(r.IntN(5)-2) + 0.2 + 0.6*r.Float64())
	}
}
