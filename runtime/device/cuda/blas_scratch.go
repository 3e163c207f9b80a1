package cuda

import (
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// scratch is memory to try a product in: the arena holds what a program needs.
type scratch struct {
	places
	all, work uintptr
}

// newScratch makes operands for p, filled with small numbers.
func (d *Device) newScratch(p *abi.Product) (*scratch, error) {
	sizes := map[string]int{"f32": 4, "f16": 2, "bf16": 2}
	matrix := func(kind string, rows, ld, stride int) int {
		return (sizes[kind]*(rows*ld+(p.Batch-1)*stride) + 255) &^ 255
	}
	rowsA, rowsB := p.M, p.K
	if p.TransA {
		rowsA = p.K
	}
	if p.TransB {
		rowsB = p.N
	}
	a, b, c := matrix(p.TypeA, rowsA, p.LDA, p.StrideA), matrix(p.TypeB, rowsB, p.LDB, p.StrideB), matrix(p.TypeC, p.M, p.LDC, p.StrideC)
	bias := (4*max(p.N, p.M) + 255) &^ 255
	n := a + b + 3*c + bias + p.WorkBytes
	all, err := d.drv.Alloc(n)
	if err != nil {
		return nil, err
	}
	x := &scratch{all: all}
	x.a, x.b, x.c = all, all+uintptr(a), all+uintptr(a+b)
	x.aux, x.add = x.c+uintptr(c), x.c+uintptr(2*c)
	x.bias = x.c + uintptr(3*c)
	x.work = x.bias + uintptr(bias)
	if p.Accumulate {
		x.add = x.c
	} else if !hasWord(p.Epilogue, "add") {
		x.add = 0
	}
	if err := d.drv.Call(driver.MemsetD8Async, all, filler, uintptr(n), d.main.handle); err != nil {
		d.drv.Free(all)
		return nil, err
	}
	return x, nil
}

// moved is where an own kernel's argument lies when it works on x.
func (x *scratch) moved(p *abi.Product, offset int) uintptr {
	switch {
	case p.WorkBytes > 0 && offset >= p.Workspace && offset < p.Workspace+p.WorkBytes:
		return x.work + uintptr(offset-p.Workspace)
	case offset == p.C:
		return x.c
	case offset == p.A:
		return x.a
	case offset == p.B:
		return x.b
	case offset == p.Bias:
		return x.bias
	case offset == p.Aux:
		return x.aux
	}
	return x.add
}
