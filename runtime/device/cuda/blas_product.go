package cuda

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// product is a matrix product of cuBLASLt: descriptors, and the arguments of the call. The library stores matrices by columns,
// so it is asked for the transpose, whose first operand is B.
type product struct {
	b                   *blas
	desc                uintptr
	left, right, result uintptr // layouts
	alpha, beta         float32
	algo                blasAlgo
	args                [16]uintptr
}

// places are the addresses of a product's operands; 0 for none.
type places struct{ a, b, c, bias, add, aux uintptr }

// epilogue is the library's number of what follows the sum, and whether the library can do that at all: it cannot where the sum
// of three terms, another type or alignment, or another form of an activation is asked for.
func epilogue(p *abi.Product) (number int, ok bool) {
	number = epilogueDefault
	words := words(p.Epilogue)
	plain := func(n int) { // the first of these takes the default's place
		if number == epilogueDefault {
			number = 0
		}
		number |= n
	}
	for _, w := range words {
		switch w {
		case "add":
			if p.Accumulate {
				return 0, false
			}
		case "bias":
			plain(epilogueBias)
		case "relu":
			plain(epilogueRelu)
		case "gelutanh":
			plain(epilogueGelu)
		case "dgelutanh":
			plain(epilogueDGelu)
		case "aux":
			plain(epilogueAux)
		case "gradn":
			plain(epilogueGradA)
		case "gradm":
			plain(epilogueGradB)
		default:
			return 0, false
		}
	}
	usesBias := number&(epilogueBias|epilogueGradA|epilogueGradB) != 0
	if usesBias && (p.TypeBias != p.TypeC || p.Batch > 1 && number&epilogueBias == 0) {
		return 0, false
	}
	gelu := hasWord(p.Epilogue, "gelutanh") || hasWord(p.Epilogue, "dgelutanh")
	if number&epilogueAux != 0 && (!gelu || p.N%8 != 0 || p.StrideC%8 != 0) {
		return 0, false
	}
	return number, !(number&epilogueDGelu == epilogueDGelu && number&epilogueBias != 0)
}

func words(epilogue string) []string {
	return strings.FieldsFunc(epilogue, func(r rune) bool { return r == '_' })
}

func hasWord(epilogue, word string) bool { return slices.Contains(words(epilogue), word) }

// newProduct makes the descriptors of p. It is nil where the library has no such product.
func (b *blas) newProduct(p *abi.Product, at places) (*product, error) {
	bits, ok := epilogue(p)
	if !ok {
		return nil, nil
	}
	q := &product{b: b, alpha: 1}
	if p.Alpha != 0 {
		q.alpha = float32(p.Alpha)
	}
	if err := q.describe(p, bits, at); err != nil {
		q.close()
		return nil, err
	}
	c := at.c
	if at.add != 0 {
		c, q.beta = at.add, 1
	}
	q.args = [16]uintptr{b.handle, q.desc, uintptr(unsafe.Pointer(&q.alpha)), at.b, q.left, at.a, q.right, uintptr(unsafe.Pointer(&q.beta)), c, q.result,
		at.c, q.result, uintptr(unsafe.Pointer(&q.algo)), b.room, blasRoom, 0}
	return q, nil
}

// describe makes the descriptor of the product and the layouts of its operands.
func (q *product) describe(p *abi.Product, bits int, at places) (err error) {
	compute := compute32F
	if p.Compute == "tf32" {
		compute = computeTF32
	}
	if err := q.b.call(descCreate, uintptr(unsafe.Pointer(&q.desc)), uintptr(compute), uintptr(cudaTypes["f32"])); err != nil {
		return err
	}
	for _, err := range []error{
		set(q.b, descSet, q.desc, descTransA, flag(p.TransB)),
		set(q.b, descSet, q.desc, descTransB, flag(p.TransA)),
		set(q.b, descSet, q.desc, descEpilogue, uint32(bits)),
	} {
		if err != nil {
			return err
		}
	}
	if bits&(epilogueBias|epilogueGradA|epilogueGradB) != 0 {
		if err := set(q.b, descSet, q.desc, descBias, uint64(at.bias)); err != nil {
			return err
		}
	}
	if bits&epilogueAux != 0 {
		for attr, value := range map[int]uint64{descAux: uint64(at.aux), descAuxLD: uint64(p.LDC), descAuxStep: uint64(p.StrideC)} {
			if err := set(q.b, descSet, q.desc, attr, value); err != nil {
				return err
			}
		}
	}
	if q.left, err = q.b.layout(p.Batch, matrixOf(p.TypeB, p.TransB, p.K, p.N), p.LDB, p.StrideB); err != nil {
		return err
	}
	if q.right, err = q.b.layout(p.Batch, matrixOf(p.TypeA, p.TransA, p.M, p.K), p.LDA, p.StrideA); err != nil {
		return err
	}
	q.result, err = q.b.layout(p.Batch, matrixOf(p.TypeC, false, p.M, p.N), p.LDC, p.StrideC)
	return err
}

func flag(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// stored is a row-major matrix as it lies in memory.
type stored struct {
	kind       string
	rows, cols int
}

func matrixOf(kind string, trans bool, rows, cols int) stored {
	if trans {
		rows, cols = cols, rows
	}
	return stored{kind, rows, cols}
}

// layout describes a matrix, or a batch of them, with ld elements between rows: as many columns as it has rows, of cols elements.
func (b *blas) layout(batch int, m stored, ld, stride int) (at uintptr, err error) {
	number, ok := cudaTypes[m.kind]
	if !ok {
		return 0, fmt.Errorf("BUG: a product of %s", m.kind)
	}
	if err := b.call(layoutCreate, uintptr(unsafe.Pointer(&at)), uintptr(number), uintptr(m.cols), uintptr(m.rows), uintptr(ld)); err != nil {
		return 0, err
	}
	if batch > 1 {
		if err = set(b, layoutSet, at, layoutBatch, int32(batch)); err == nil {
			err = set(b, layoutSet, at, layoutStride, int64(stride))
		}
	}
	return at, err
}

// candidates asks the library for at most n ways to do the product, the best first as far as it knows.
func (q *product) candidates(n int) ([]blasResult, error) {
	var pref uintptr
	if err := q.b.call(prefCreate, uintptr(unsafe.Pointer(&pref))); err != nil {
		return nil, err
	}
	defer q.b.call(prefDestroy, pref)
	if err := set(q.b, prefSet, pref, prefWorkspace, uint64(blasRoom)); err != nil {
		return nil, err
	}
	for i := range 4 {
		if err := set(q.b, prefSet, pref, prefAlignA+i, uint32(abi.Align)); err != nil {
			return nil, err
		}
	}
	list := make([]blasResult, n)
	var found int32
	if err := q.b.call(blasHeuristic, q.b.handle, q.desc, q.left, q.right, q.result, q.result, pref, uintptr(n), uintptr(unsafe.Pointer(&list[0])),
		uintptr(unsafe.Pointer(&found))); err != nil {
		return nil, err
	}
	list = list[:min(int(found), n)]
	return slices.DeleteFunc(list, func(r blasResult) bool { return r.state != 0 || r.room > blasRoom }), nil
}

// takes reports whether the library still has the algorithm for this product, as it may not when it came from a file.
func (q *product) takes(a *blasAlgo) bool {
	var r blasResult
	return q.b.call(blasCheck, q.b.handle, q.desc, q.left, q.right, q.result, q.result, uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(&r))) == nil &&
		r.state == 0 && r.room <= blasRoom
}

// run queues the product. It allocates nothing.
func (q *product) run(s *stream) error {
	q.args[15] = s.handle
	return s.d.during("multiplying matrices", q.b.call(blasMatmul, q.args[:]...))
}

func (q *product) close() {
	for _, x := range []struct {
		f  int
		at uintptr
	}{{descDestroy, q.desc}, {layoutDestroy, q.left}, {layoutDestroy, q.right}, {layoutDestroy, q.result}} {
		if x.at != 0 {
			q.b.call(x.f, x.at)
		}
	}
}
