package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

func init() {
	templates["Gemm"] = template{native: gemmNative, lower: lowerGemm}
	templates["GemmEpilogue"] = template{native: gemmEpilogueNative, lower: lowerGemm}
}

// Activations of a product, as kernels/cpu numbers them. The derivatives multiply by that of the activation at aux.
const (
	actNone     = 0
	actRelu     = 1
	actGeluTanh = 2
	actGeluErf  = 3
	derivative  = 4 // added to an activation: its derivative
)

// gemm is a product as kernels see it. See GemmPointers of gemm.cuh for the operands.
type gemm struct {
	batch, m, n, k            int
	transA, transB            bool
	strideA, strideB, strideC int
	act                       int
	alpha                     float64
	writesAux                 bool
	sums                      int         // 1: those of A's rows over k besides, 2: of B's columns
	in, bias, out             dtype.DType // bias is Invalid where there is none
	tf32                      bool

	a, b, biasAt, add, c, aux, sumsAt int // pointer numbers of the call, or Nil
}

var floats = []dtype.DType{dtype.F32, dtype.BF16, dtype.F16}

// gemmNative: operands of one type, a result of that or f32, and a bias of either.
func gemmNative(types []dtype.DType) bool {
	if len(types) != 4 {
		return false
	}
	a, bias, c := types[0], types[2], types[3]
	return slices.Contains(floats, a) && types[1] == a && (c == a || c == dtype.F32) && (bias == dtype.Invalid || bias == a || bias == dtype.F32)
}

// gemmEpilogueNative: the same, and what is added, kept and summed is of the result's type.
func gemmEpilogueNative(types []dtype.DType) bool {
	if len(types) != 7 || !gemmNative([]dtype.DType{types[0], types[1], types[2], types[5]}) {
		return false
	}
	for _, d := range []dtype.DType{types[3], types[4], types[6]} {
		if d != dtype.Invalid && d != types[5] {
			return false
		}
	}
	return true
}

// lowerGemm plans Gemm, whose integers kernels/cpu documents, and GemmEpilogue, a product with what follows it: pointers a, b, bias,
// add, aux, c and sums, integers batch, m, n, k, transA, transB, strideA, strideB, strideC as Gemm has them, the activation (of
// the sum of products, bias and add), whether the value before it is stored in aux, and which sums are made: 1 those of A's rows
// over k, 2 those of B's columns.
func lowerGemm(c Call) (*Plan, error) {
	g, err := newGemm(c)
	if err != nil {
		return nil, err
	}
	return g.plan()
}

// newGemm reads a call of Gemm or GemmEpilogue.
func newGemm(c Call) (*gemm, error) {
	i, want := c.Ints, 11
	if c.Name == "GemmEpilogue" {
		want = 12
	}
	if len(i) != want {
		return nil, fmt.Errorf("BUG: %s takes %d integers, not %d", c.Name, want, len(i))
	}
	g := &gemm{batch: i[0], m: i[1], n: i[2], k: i[3], transA: i[4] != 0, transB: i[5] != 0, strideA: i[6], strideB: i[7], strideC: i[8],
		act: i[9], alpha: 1, in: c.Types[0], bias: c.Types[2], out: c.Types[3], tf32: c.Compute == "tf32", a: 0, b: 1, biasAt: Nil, add: Nil, c: 3, aux: Nil, sumsAt: Nil}
	if g.bias != dtype.Invalid {
		g.biasAt = 2
	}
	if c.Name == "GemmEpilogue" {
		return g.with(c.Types, i[10], i[11])
	}
	if i[10] != 0 {
		g.add = 3
	}
	return g, nil
}

// with adds what GemmEpilogue has besides.
func (g *gemm) with(types []dtype.DType, writesAux, sums int) (*gemm, error) {
	g.out, g.c, g.writesAux, g.sums = types[5], 5, writesAux != 0, sums
	for _, p := range []struct {
		at     *int
		number int
		needed bool
	}{{&g.add, 3, false}, {&g.aux, 4, g.writesAux || g.act > derivative}, {&g.sumsAt, 6, sums != 0}} {
		if types[p.number] != dtype.Invalid {
			*p.at = p.number
		} else if p.needed {
			return nil, fmt.Errorf("BUG: GemmEpilogue lacks pointer %d", p.number)
		}
	}
	if sums != 0 && g.batch > 1 {
		return nil, fmt.Errorf("BUG: GemmEpilogue makes sums of a batch of %d", g.batch)
	}
	return g, nil
}

// plan is the product for a library, and gtc's own kernel.
func (g *gemm) plan() (*Plan, error) {
	if g.act < actNone || g.act > actGeluErf+derivative || g.act == derivative {
		return nil, fmt.Errorf("BUG: Gemm has no activation %d", g.act)
	}
	k, work, err := g.kernel()
	if err != nil {
		return nil, err
	}
	p := &Plan{Kernels: []Kernel{k}, Product: g.product(), Workspace: work}
	if sums, more, ok := g.sumsKernel(); ok {
		p.Kernels, p.Product.OwnSums, p.Workspace = append(p.Kernels, sums), 1, max(work, more)
	}
	return p, nil
}

// lines are the lengths of the operands' rows as stored.
func (g *gemm) lines() (a, b int) {
	a, b = g.k, g.n
	if g.transA {
		a = g.m
	}
	if g.transB {
		b = g.k
	}
	return a, b
}

// product is what a library is asked for.
func (g *gemm) product() *abi.Product {
	lda, ldb := g.lines()
	p := &abi.Product{M: g.m, N: g.n, K: g.k, Batch: g.batch, TransA: g.transA, TransB: g.transB, LDA: lda, LDB: ldb, LDC: g.n,
		StrideA: g.strideA, StrideB: g.strideB, StrideC: g.strideC, TypeA: g.in.String(), TypeB: g.in.String(), TypeC: g.out.String(),
		Compute: "f32", Alpha: g.alpha, Accumulate: g.add == g.c, Epilogue: g.epilogue(), A: g.a, B: g.b, C: g.c, Bias: g.biasAt, Add: g.add, Aux: g.aux}
	if g.tf32 && g.in == dtype.F32 {
		p.Compute = "tf32"
	}
	if g.bias != dtype.Invalid {
		p.TypeBias = g.bias.String()
	}
	if g.sums != 0 {
		p.Bias, p.TypeBias = g.sumsAt, p.TypeC
	}
	return p
}

// epilogue names what follows the sum, as abi.Product says.
func (g *gemm) epilogue() string {
	var words []string
	for _, w := range []struct {
		on   bool
		word string
	}{
		{g.bias != dtype.Invalid, "bias"}, {g.add != Nil && g.add != g.c, "add"}, {g.writesAux, "aux"},
		{g.act != actNone, strings.Repeat("d", g.act/derivative) + []string{"", "relu", "gelutanh", "geluerf"}[g.act%derivative]},
		{g.sums == 1, "gradm"}, {g.sums == 2, "gradn"},
	} {
		if w.on {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, "_")
}
