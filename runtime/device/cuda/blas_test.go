package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/dynlib"
)

// standInBlas opens the stand-in for cuBLASLt.
func standInBlas(t *testing.T) *blas {
	useLibrary(t, blasVariable, "cublaslt.cc")
	b, err := openBlas()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.call(blasDestroy, b.handle) })
	return b
}

// matrix is memory at a multiple of 64, of random f32.
func matrix(r *rand.Rand, n int) []float32 {
	all := make([]float32, n+16)
	skip := 0
	for uintptr(unsafe.Pointer(&all[skip]))%64 != 0 {
		skip++
	}
	x := all[skip : skip+n]
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func at(x []float32) uintptr {
	if len(x) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&x[0]))
}

// rows is element (i, j) of a matrix as stored.
func rows(x []float32, i, j, ld int, trans bool) float64 {
	if trans {
		i, j = j, i
	}
	return float64(x[i*ld+j])
}

// multiply is what p means, in float64. The result is C, what is stored in Aux, and in Bias.
func multiply(p *abi.Product, a, b, bias, add, c, aux []float32) (result, stored, sums []float64) {
	result, stored = make([]float64, len(c)), make([]float64, len(c))
	alpha := p.Alpha
	if alpha == 0 {
		alpha = 1
	}
	for z := range max(p.Batch, 1) {
		for i := range p.M {
			for j := range p.N {
				x := 0.0
				for k := range p.K {
					x += rows(a[z*p.StrideA:], i, k, p.LDA, p.TransA) * rows(b[z*p.StrideB:], k, j, p.LDB, p.TransB)
				}
				x *= alpha
				n := z*p.StrideC + i*p.LDC + j
				if p.Accumulate {
					x += float64(c[n])
				}
				for _, w := range words(p.Epilogue) {
					switch w {
					case "bias":
						x += float64(bias[j])
					case "add":
						x += float64(add[n])
					case "aux":
						stored[n] = x
					case "relu":
						x = max(x, 0)
					case "gelutanh":
						x = 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
					case "dgelutanh":
						y := float64(aux[n])
						t := math.Tanh(math.Sqrt(2/math.Pi) * (y + 0.044715*y*y*y))
						x *= 0.5*(1+t) + 0.5*y*(1-t*t)*math.Sqrt(2/math.Pi)*(1+3*0.044715*y*y)
					}
				}
				result[n] = x
			}
		}
	}
	if hasWord(p.Epilogue, "gradn") {
		sums = make([]float64, p.N)
		for j := range p.N {
			for k := range p.K {
				sums[j] += rows(b, k, j, p.LDB, p.TransB)
			}
		}
	}
	if hasWord(p.Epilogue, "gradm") {
		sums = make([]float64, p.M)
		for i := range p.M {
			for k := range p.K {
				sums[i] += rows(a, i, k, p.LDA, p.TransA)
			}
		}
	}
	return result, stored, sums
}

func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i, w := range want {
		if math.Abs(float64(got[i])-w) > 1e-4*(1+math.Abs(w)) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, got[i], w)
		}
	}
}

// Products by way of the library mean what abi.Product says, in every layout and with every epilogue.
func TestBlasProducts(t *testing.T) {
	lib := standInBlas(t)
	r := rand.New(rand.NewPCG(3, 3))
	for _, epilogues := range []string{"", "bias", "add", "bias_add_relu", "relu", "bias_gelutanh", "bias_aux_gelutanh", "aux_gelutanh", "dgelutanh", "gradn", "gradm"} {
		for layout := range 8 {
			p := &abi.Product{M: 5, N: 16, K: 7, Batch: 1, TransA: layout&1 != 0, TransB: layout&2 != 0, TypeA: "f32", TypeB: "f32", TypeC: "f32", TypeBias: "f32",
				Compute: "f32", Epilogue: epilogues, LDC: 16}
			p.LDA, p.LDB = p.K, p.N
			if p.TransA {
				p.LDA = p.M
			}
			if p.TransB {
				p.LDB = p.K
			}
			if layout&4 != 0 {
				if strings.Contains(epilogues, "grad") {
					continue
				}
				p.Batch, p.StrideA, p.StrideC, p.Alpha = 3, p.M*p.K, p.M*p.N, 0.5 // B is shared
				p.Accumulate = !hasWord(epilogues, "add")
			}
			a, b, c := matrix(r, p.Batch*p.M*p.K), matrix(r, p.K*p.N), matrix(r, p.Batch*p.M*p.N)
			bias, add, aux := matrix(r, p.N+p.M), matrix(r, len(c)), matrix(r, len(c))
			result, stored, sums := multiply(p, a, b, bias, add, c, aux)
			where := places{a: at(a), b: at(b), c: at(c), bias: at(bias), aux: at(aux)}
			if hasWord(epilogues, "add") {
				where.add = at(add)
			} else if p.Accumulate {
				where.add = where.c
			}
			name := fmt.Sprintf("%s layout %d", epilogues, layout)
			q, err := lib.newProduct(p, where)
			if err != nil || q == nil {
				t.Fatalf("%s: %v %v", name, q, err)
			}
			list, err := q.candidates(tried)
			if err != nil || len(list) != 2 { // the stand-in has three, of which it refuses one
				t.Fatalf("%s: %d candidates, %v", name, len(list), err)
			}
			q.algo = list[0].algo
			if !q.takes(&q.algo) || q.takes(&blasAlgo{1, 2, 3}) {
				t.Errorf("%s: a good algorithm is refused, or a bad one is taken", name)
			}
			if err := lib.call(blasMatmul, q.args[:]...); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			near(t, name, c, result)
			if hasWord(epilogues, "aux") {
				near(t, name+" aux", aux, stored)
			}
			near(t, name+" sums", bias, sums)
			q.close()
		}
	}
}

// What the library lacks is left to gtc's own kernels.
func TestBlasLacks(t *testing.T) {
	lib := standInBlas(t)
	good := abi.Product{M: 8, N: 8, K: 8, Batch: 1, LDA: 8, LDB: 8, LDC: 8, TypeA: "bf16", TypeB: "bf16", TypeC: "bf16", TypeBias: "bf16", Compute: "f32", Epilogue: "bias"}
	for name, change := range map[string]func(p *abi.Product){
		"":                              func(*abi.Product) {},
		"erf form":                      func(p *abi.Product) { p.Epilogue = "bias_geluerf" },
		"relu's derivative":             func(p *abi.Product) { p.Epilogue = "drelu" },
		"bias of another type":          func(p *abi.Product) { p.TypeBias = "f32" },
		"relu with aux":                 func(p *abi.Product) { p.Epilogue = "aux_relu" },
		"aux with odd rows":             func(p *abi.Product) { p.Epilogue, p.N, p.LDC, p.LDB = "aux_gelutanh", 9, 9, 9 },
		"two addends":                   func(p *abi.Product) { p.Epilogue, p.Accumulate = "add", true },
		"bias before a derivative":      func(p *abi.Product) { p.Epilogue = "bias_dgelutanh" },
		"sums of a batch":               func(p *abi.Product) { p.Epilogue, p.Batch = "gradn", 2 },
		"a word that is not known here": func(p *abi.Product) { p.Epilogue = "swish" },
	} {
		p := good
		change(&p)
		q, err := lib.newProduct(&p, places{})
		if err != nil || (q != nil) != (name == "") {
			t.Errorf("%q: %v, %v", name, q, err)
		}
	}
}

// The real library binds, and takes the descriptors and attributes that gtc makes. That needs no GPU.
func TestBlasLibrary(t *testing.T) {
	var names []string
	for _, dir := range []string{"lib64", "lib"} {
		names = append(names, filepath.Join(os.Getenv("CUDA_HOME"), dir, "libcublasLt.so.13"), filepath.Join(os.Getenv("CUDA_HOME"), dir, "libcublasLt.so.12"))
	}
	lib, err := dynlib.Open(blasVariable, append(names, "libcublasLt.so.13", "libcublasLt.so.12")...)
	if err != nil {
		t.Skip("cuBLASLt is absent (pip install nvidia-cublas, and set "+blasVariable+" to its libcublasLt.so): ", err)
	}
	b, err := bindBlas(lib)
	if err != nil {
		t.Fatal(err)
	}
	if b.version < 110000 {
		t.Errorf("it is version %d", b.version)
	}
	p := &abi.Product{M: 64, N: 64, K: 64, Batch: 2, StrideC: 4096, LDA: 64, LDB: 64, LDC: 64, TypeA: "bf16", TypeB: "bf16", TypeC: "bf16", TypeBias: "bf16", TransA: true,
		Compute: "f32", Epilogue: "bias_aux_gelutanh"}
	q, err := b.newProduct(p, places{a: 64, b: 64, c: 64, bias: 64, aux: 64})
	if err != nil || q == nil {
		t.Fatal(q, err)
	}
	q.close()
	var pref uintptr
	if err := b.call(prefCreate, uintptr(unsafe.Pointer(&pref))); err != nil {
		t.Fatal(err)
	}
	if err := set(b, prefSet, pref, prefWorkspace, uint64(blasRoom)); err != nil {
		t.Error(err)
	}
	for i := range 4 {
		if err := set(b, prefSet, pref, prefAlignA+i, uint32(64)); err != nil {
			t.Error(err)
		}
	}
	if set(b, prefSet, pref, prefAlignA, uint64(64)) == nil {
		t.Error("an attribute of the wrong size is taken: this test sees nothing")
	}
}

// The file of choices survives, and what is damaged in it is left out.
func TestChoices(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(cacheVariable, dir)
	c := openChoices("NVIDIA X/1", "13.0", 130002)
	algo := &blasAlgo{1, 0xffffffffffffffff, 3}
	c.keep("first", choiceOf(algo, 12.5))
	c.keep("own", choiceOf(nil, 3))
	other := openChoices("NVIDIA X/1", "13.0", 130002)
	other.keep("second", choiceOf(algo, 1))
	c.keep("third", choiceOf(algo, 1))
	again := openChoices("NVIDIA X/1", "13.0", 130002)
	if len(again.list) != 4 {
		t.Fatalf("the file has %v", again.list)
	}
	if a, ok := again.list["first"].algo(); !ok || *a != *algo {
		t.Errorf("the algorithm is %v", a)
	}
	if a, ok := again.list["own"].algo(); !ok || a != nil {
		t.Errorf("gtc's own is %v", a)
	}
	if n := len(openChoices("NVIDIA X/1", "13.1", 130002).list); n != 0 {
		t.Errorf("another driver finds %d choices", n)
	}
	for text, n := range map[string]int{"": 0, "{": 0, `{"a":{"algo":["zz"],"us":1},"b":{"us":2}}`: 1} {
		if err := os.WriteFile(c.file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := len(openChoices("NVIDIA X/1", "13.0", 130002).list); got != n {
			t.Errorf("%q has %d choices, want %d", text, got, n)
		}
	}
	os.WriteFile(c.file, nil, 0o644)
	in, out := make(chan bool), make(chan bool)
	go func() {
		<-in
		again.alone(func() {
			if len(again.list) != 5 {
				t.Errorf("another process sees %d choices", len(again.list))
			}
		})
		close(out)
	}()
	c.alone(func() {
		close(in)
		time.Sleep(20 * time.Millisecond)
		c.keep("fifth", choiceOf(nil, 1))
	})
	<-out
	os.Remove(c.file + ".lock")
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files are left", len(files))
	}
}
