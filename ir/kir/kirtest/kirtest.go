// Package kirtest holds what tests of the printers share: the kernels of ir/kir/testdata, kernels of every scalar function,
// contents for their buffers, and how the results of a printed kernel are compared with those of kir's Eval.
package kirtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Kernel is a kernel with a name and contents for its buffers, and what it must leave in them.
type Kernel struct {
	Name          string
	Kernel        *kir.Kernel
	Before, After []kir.Buffer
}

// Goldens reads the kernels dir/NAME.kir that are golden files' inputs, one each, as ir/kir/testdata has them; models.kir, which
// holds many, is not one. A file that is not printed as it is written, but for its comment, fails the test.
func Goldens(t testing.TB, dir string) []*Kernel {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.kir"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d kernels in %s: %v", len(files), dir, err)
	}
	var list []*Kernel
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".kir")
		if name == "models" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		k, err := kir.Parse(string(data))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		comment, text, _ := strings.Cut(string(data), "\n")
		if !strings.HasPrefix(comment, "# ") || text != k.String() {
			t.Errorf("%s: want a comment and then\n%s", file, k)
		}
		list = append(list, New(t, name, k, rand.New(rand.NewPCG(1, uint64(len(list))))))
	}
	return list
}

// New fills the buffers of k and evaluates it.
func New(t testing.TB, name string, k *kir.Kernel, r *rand.Rand) *Kernel {
	t.Helper()
	out := &Kernel{Name: name, Kernel: k}
	for _, p := range k.Params {
		out.Before = append(out.Before, Fill(r, p.DType, p.Elems))
	}
	out.eval(t)
	return out
}

// eval sets After.
func (k *Kernel) eval(t testing.TB) {
	t.Helper()
	for i, p := range k.Kernel.Params {
		k.After = append(k.After, kir.ReadBuffer(p.DType, k.Before[i].Bytes(p.DType)))
	}
	if err := k.Kernel.Eval(k.After); err != nil {
		t.Fatalf("%s: %v\n%s", k.Name, err, k.Kernel)
	}
}

// Check compares the buffers that a printed kernel has left with those of Eval.
func (k *Kernel) Check(t testing.TB, got [][]byte) {
	t.Helper()
	tol := 0.0
	for _, in := range k.Kernel.Insts {
		if in.DType.IsFloat() && in.DType != dtype.F64 {
			tol = 1e-5
		}
	}
	for i, p := range k.Kernel.Params {
		if err := Differ(p.DType, kir.ReadBuffer(p.DType, got[i]), k.After[i], max(tol, Tolerance(p.DType))); err != nil {
			t.Errorf("%s: p%d: %v\n%s", k.Name, i, err, k.Kernel)
		}
	}
}

// Fill makes n numbers of type d: floats in (-1, 1), integers of few digits of either sign.
func Fill(r *rand.Rand, d dtype.DType, n int) kir.Buffer {
	b := kir.NewBuffer(d, n)
	for i := range b.F {
		b.F[i] = d.Round(2*r.Float64() - 1)
	}
	for i := range b.I {
		if b.I[i] = d.Wrap(r.Int64N(200) - 100); d == dtype.Bool {
			b.I[i] &= 1
		}
	}
	return b
}

// special are numbers at which functions differ: ends of their domains, ties, halves.
var special = []float64{0, 1, -1, 0.5, -0.5, 2.5, -3.5, 100, -100, 7, 1.5, 3}

// Edges makes n numbers of type d: some of special, and ends of the type, the rest at random over a wider range.
func Edges(r *rand.Rand, d dtype.DType, n int) kir.Buffer {
	b := kir.NewBuffer(d, n)
	for i := range b.F {
		if b.F[i] = d.Round(4 * r.NormFloat64()); i < len(special) {
			b.F[i] = d.Round(special[i])
		}
	}
	for i := range b.I {
		v := int64(r.Uint64())
		switch i % 8 {
		case 0, 1, 2:
			v = int64(i%8) - 1
		case 3:
			v = math.MinInt64 >> (64 - d.Bits()) // the least of a signed type
		case 4:
			v = math.MaxInt64 >> (64 - d.Bits())
		case 5:
			v = int64(i)
		}
		if b.I[i] = d.Wrap(v); d == dtype.Bool {
			b.I[i] = v & 1
		}
	}
	r.Shuffle(len(b.F), func(i, j int) { b.F[i], b.F[j] = b.F[j], b.F[i] })
	r.Shuffle(len(b.I), func(i, j int) { b.I[i], b.I[j] = b.I[j], b.I[i] })
	return b
}

// computed are the types that kernels compute in, stored those that are only cast from and to.
var (
	computed = []dtype.DType{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.I8, dtype.I16, dtype.I32, dtype.I64,
		dtype.U8, dtype.U16, dtype.U32, dtype.U64, dtype.Bool}
	stored = []dtype.DType{dtype.F8E4M3, dtype.F8E4M3Z, dtype.F8E5M2, dtype.F8E5M2Z, dtype.F8E8M0, dtype.F4E2M1, dtype.I4, dtype.U4, dtype.I2, dtype.U2}
)

// Functions are kernels that apply every scalar function to numbers of every type that it takes, a kernel for each type: what
// a row of kir's table has to say of itself is whether the printed text gives what its meaning on the host does. Casts are to
// every type there is, bitcasts to those of the same size.
func Functions(t testing.TB) []*Kernel {
	var list []*Kernel
	for _, d := range slices.Concat(computed, stored) {
		r := rand.New(rand.NewPCG(5, uint64(d)))
		m := newApplied(d)
		for _, f := range kir.All() {
			switch {
			case f.Rule == kir.Convert:
				for _, to := range slices.Concat(computed, stored) {
					fits := to.Size() == d.Size() && to.Bits() == d.Bits() && to.Bits() >= 8 && to != dtype.Bool && d != dtype.Bool
					if to != d && (f.Name == "cast" && (d.IsFloat() || !to.IsSmallFloat()) || f.Name == "bitcast" && fits && !to.IsFloat()) {
						m.apply(f.Name, to, 0)
					}
				}
			case f.Rule == kir.Choose:
				m.apply(f.Name, d, 2, 0, 1)
			case f.Takes.Has(d):
				to := d
				if f.Rule == kir.Test {
					to = dtype.Bool
				}
				m.apply(f.Name, to, []int{0, 1}[:f.Args]...)
			}
		}
		n := &Kernel{Name: "functions_of_" + d.String(), Kernel: m.k}
		for i, p := range m.k.Params {
			b := kir.NewBuffer(p.DType, p.Elems)
			if i < 3 {
				b = Edges(r, p.DType, p.Elems)
			}
			n.Before = append(n.Before, b)
		}
		n.eval(t)
		list = append(list, n)
	}
	return list
}

// applied builds a kernel of functions of three operands: two of one type and a Bool.
type applied struct{ k *kir.Kernel }

const appliedElems = 96

var along = kir.Access{Strides: []int{1}}

func newApplied(d dtype.DType) applied {
	k := &kir.Kernel{Dims: []int{appliedElems}, Row: []bool{true}, Chunks: 1}
	for i, p := range []dtype.DType{d, d, dtype.Bool} {
		k.Params = append(k.Params, kir.Param{DType: p, Elems: appliedElems, Align: 64})
		k.Insts = append(k.Insts, kir.Inst{Op: "load", DType: p, Param: i, Access: along, Level: kir.PerElem})
	}
	return applied{k}
}

// apply adds a function and the store of its result.
func (m applied) apply(op string, to dtype.DType, args ...int) {
	m.k.Insts = append(m.k.Insts, kir.Inst{Op: op, DType: to, Args: args, Level: kir.PerElem})
	m.k.Insts = append(m.k.Insts, kir.Inst{Op: "store", DType: to, Args: []int{len(m.k.Insts) - 1}, Param: len(m.k.Params), Access: along, Level: kir.PerElem})
	m.k.Params = append(m.k.Params, kir.Param{DType: to, Elems: appliedElems, Out: true, Align: 64})
}

// Differ compares element by element: integers must be equal; floats may be off by tol of the number or of 1, and where one
// is NaN or infinite the other must be.
func Differ(d dtype.DType, got, want kir.Buffer, tol float64) error {
	for i, w := range want.I {
		if got.I[i] != w {
			return fmt.Errorf("element %d of %d is %d, must be %d", i, len(want.I), got.I[i], w)
		}
	}
	for i, w := range want.F {
		g := got.F[i]
		if w = d.Round(w); g == w || g != g && w != w {
			continue
		}
		if e := math.Abs(g - w); !(e <= tol*math.Abs(w)+tol) {
			return fmt.Errorf("element %d of %d is %v, must be %v", i, len(want.F), g, w)
		}
	}
	return nil
}

// Tolerance is how far a printed kernel that computes in type d may be from Eval, which computes in float64: a few roundings of
// d, or of sums and functions in f32.
func Tolerance(d dtype.DType) float64 {
	switch d {
	case dtype.F64:
		return 1e-12
	case dtype.F16:
		return 1.0 / 512
	case dtype.BF16:
		return 1.0 / 64
	}
	return 1e-5
}

// Compare holds text to the golden file; with update it writes it.
func Compare(t *testing.T, file, text string, update bool) {
	t.Helper()
	if update {
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	if text != string(want) {
		t.Errorf("%s is not what is printed now; when that is meant, -update writes it:\n%s", file, text)
	}
}
