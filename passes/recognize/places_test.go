package recognize

import (
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// TestPlacesHold: every element of random integer arithmetic lies where placesOf says, also where it overflows.
func TestPlacesHold(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	told := 0 // elements of which more is known than their type
	for range 300 {
		f, pool := randomInts(r)
		m := &matcher{places: map[*ir.Value]*places{}}
		for range 8 {
			args := map[string]*ir.Array{}
			for _, p := range f.Params {
				args[p.Name] = ir.NewArray(p.Type)
				for i := range args[p.Name].I {
					args[p.Name].I[i] = int64(r.IntN(256) - 128)
				}
			}
			out, err := interp.Run(f, args)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range pool {
				p := m.placesOf(v)
				lo, hi := rangeOf(v.Type.DType)
				for i, x := range out.Named[v.Name].I {
					if x < p.lo[i] || x > p.hi[i] {
						t.Fatalf("element %d of %%%s is %d, not from %d to %d\n%s", i, v.Name, x, p.lo[i], p.hi[i], f)
					}
					if v.Op.Def != ops.ConstDef && (p.lo[i] > lo || p.hi[i] < hi) {
						told++
					}
				}
			}
		}
	}
	if told < 10000 {
		t.Errorf("of only %d elements anything is known", told)
	}
}

// randomInts is a function of random ops on two inputs of type i8, and its results.
func randomInts(r *rand.Rand) (*ir.Func, []*ir.Value) {
	f := &ir.Func{Name: "f"}
	b := ir.NewBuilder(f)
	ty := ir.T(dtype.I8, 2, 3)
	pool := []*ir.Value{b.Param("x", ty, ir.Input), b.Param("y", ty, ir.Input), ops.Iota(b, dtype.I8, []int{2, 3}, 1),
		ops.Full(b, ty, float64(1+r.IntN(20))), ops.Full(b, ty, float64(-r.IntN(20)))}
	for range 10 {
		one := func() *ir.Value { return pool[r.IntN(len(pool))] }
		x, y := one(), one()
		var v *ir.Value
		switch r.IntN(10) {
		case 0:
			v = ops.Add(b, x, y)
		case 1:
			v = ops.Sub(b, x, y)
		case 2:
			v = ops.Mul(b, x, y)
		case 3:
			v = ops.Minimum(b, x, y)
		case 4:
			v = ops.Maximum(b, x, y)
		case 5:
			v = ops.Mod(b, x, pool[3])
		case 6:
			v = ops.FMod(b, x, pool[3])
		case 7:
			less := []func(*ir.Builder, *ir.Value, *ir.Value) *ir.Value{ops.Lt, ops.Le, ops.Gt, ops.Ge}[r.IntN(4)]
			v = ops.Where(b, less(b, x, y), one(), one())
		case 8:
			v = ops.Cast(b, ops.Cast(b, x, dtype.Bool), dtype.I8)
		case 9:
			v = ops.Cast(b, ops.Add(b, ops.Cast(b, x, dtype.I64), ops.Cast(b, y, dtype.I64)), dtype.I8)
		}
		pool = append(pool, v)
	}
	made := pool[2:]
	for _, v := range made {
		b.Result(v.Name, v)
	}
	return f, made
}
