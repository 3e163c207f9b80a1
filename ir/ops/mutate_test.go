package ops_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// TestFaultyOps changes operand types and attributes of every sample at random: inference must accept or refuse
// them, and what it accepts must have a dimension rule and an implementation. Nothing may panic.
func TestFaultyOps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, d := range ir.Defs() {
		for _, s := range d.Rules.Samples(r) {
			for range 60 {
				if what := try(d, mutated(r, s)); what != "" {
					t.Errorf("%s: %s", d.Name, what)
					break
				}
			}
		}
	}
}

// try builds the op and asks for its rules; it tells what panicked.
func try(d *ir.Def, s ir.Sample) (what string) {
	stage := "inference"
	defer func() {
		switch e := recover().(type) {
		case nil, *ir.Error:
		default:
			what = fmt.Sprintf("%s panics with %v on %v %+v", stage, e, s.In, s.Attrs)
		}
	}()
	b := ir.NewBuilder(&ir.Func{})
	b.Loc = ir.Loc{Node: d.Name}
	var in []*ir.Value
	for _, t := range s.In {
		var v *ir.Value
		if t.DType != dtype.Invalid {
			v = b.Param("x", t, ir.Input)
		}
		in = append(in, v)
	}
	op := b.EmitN(d, s.Attrs, in...)[0].Op
	for i, v := range op.Out {
		if slices.ContainsFunc(v.Type.Dims, func(n int) bool { return n < 0 }) || v.Type.DType == dtype.Invalid {
			return fmt.Sprintf("result %d is %s on %v %+v", i, v.Type, s.In, s.Attrs)
		}
	}
	if stage = "the dimension rule"; d.Rules.Factors != nil {
		d.Rules.Factors(op)
	}
	if stage = "Impl"; d.Rules.Impl != nil {
		d.Rules.Impl(op)
	}
	return ""
}

var oddInts = []int{-2, -1, 0, 1, 2, 3, 7, 1 << 40}

func mutated(r *rand.Rand, s ir.Sample) ir.Sample {
	s.In = slices.Clone(s.In)
	for range 1 + r.IntN(2) {
		if k := r.IntN(len(s.In) + 2); k < len(s.In) {
			s.In[k] = mutatedType(r, s.In[k])
		} else if s.Attrs != nil {
			s.Attrs = mutatedAttrs(r, s.Attrs)
		}
	}
	return s
}

func mutatedType(r *rand.Rand, t ir.Type) ir.Type {
	t.Dims = slices.Clone(t.Dims)
	switch r.IntN(6) {
	case 0:
		t.DType = dtype.DType(r.IntN(int(dtype.Bool) + 1))
	case 1:
		t.Dims = append(t.Dims, r.IntN(3))
	case 2:
		t.Dims = t.Dims[:r.IntN(len(t.Dims)+1)]
	default:
		if len(t.Dims) > 0 {
			t.Dims[r.IntN(len(t.Dims))] = r.IntN(8)
		}
	}
	return t
}

func mutatedAttrs(r *rand.Rand, attrs any) any {
	v := reflect.New(reflect.TypeOf(attrs)).Elem()
	v.Set(reflect.ValueOf(attrs))
	if v.NumField() == 0 {
		return attrs
	}
	odd := func() int { return oddInts[r.IntN(len(oddInts))] }
	switch f := v.Field(r.IntN(v.NumField())); x := f.Interface().(type) {
	case int:
		f.SetInt(int64(odd()))
	case bool:
		f.SetBool(!x)
	case string:
		f.SetString([]string{"", "bshd", "x"}[r.IntN(3)])
	case float64:
		f.SetFloat([]float64{-1, 0, inf, nan}[r.IntN(4)])
	case dtype.DType:
		f.Set(reflect.ValueOf(dtype.DType(r.IntN(int(dtype.Bool) + 1))))
	case []int:
		x = slices.Clone(x)
		switch k := r.IntN(4); {
		case k == 0:
			x = append(x, odd())
		case k == 1:
			x = x[:r.IntN(len(x)+1)]
		case len(x) > 0:
			x[r.IntN(len(x))] = odd()
		}
		f.Set(reflect.ValueOf(x))
	case *ir.Tensor:
		f.SetZero()
	}
	return v.Interface()
}
