package cuda

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// How products are tried out.
const (
	tried    = 6                    // algorithms of the library
	patience = 2 * time.Millisecond // that one is run for
	mostRuns = 50
	filler   = 0x3c // of operands' bytes: small positive numbers in every type
)

// libraries are those of NVIDIA's that a device uses beside the driver.
type libraries struct {
	looked   bool
	blas     *blas // nil where it is not here
	choices  *choices
	products []*product
	warm     map[string]bool // products whose kernels are loaded
	dnn      dnnLibrary
}

func (l *libraries) close() {
	for _, p := range l.products {
		p.close()
	}
	if l.blas != nil {
		l.blas.call(blasDestroy, l.blas.handle)
	}
	l.dnn.close()
	*l = libraries{}
}

// cublas opens the library the first time. A stand-in of the driver, whose device runs kernels of kind host, gets one only if
// the environment names it.
func (d *Device) cublas() (*blas, error) {
	l := &d.lib
	if l.looked {
		return l.blas, nil
	}
	l.looked = true
	named := os.Getenv(blasVariable)
	if named == "off" || named == "" && d.info.Image == "host" {
		return nil, nil
	}
	b, err := openBlas()
	if err != nil {
		if named != "" {
			return nil, err
		}
		return nil, nil
	}
	if b.room, err = d.drv.Alloc(blasRoom); err != nil {
		b.call(blasDestroy, b.handle)
		return nil, nil // gtc's own kernels do with the arena
	}
	d.tables = append(d.tables, b.room)
	l.blas, l.choices = b, openChoices(d.info.Name, d.info.Driver, b.version)
	return b, nil
}

// product prepares a matrix product for cuBLASLt; nil where gtc's own kernels do it, because there is no library, or it has no
// such product, or they were faster when both were tried. Trying takes place here, so that it is no part of a recorded graph.
func (d *Device) product(p *abi.Product) (func(s *stream) error, error) {
	b, err := d.cublas()
	if b == nil || err != nil {
		return nil, err
	}
	q, err := b.newProduct(p, d.places(p))
	if q == nil || err != nil {
		return nil, d.unlessOwn(p, err)
	}
	d.lib.products = append(d.lib.products, q)
	key := problem(p)
	if c, ok := d.lib.choices.list[key]; ok {
		if algo, _ := c.algo(); algo == nil && len(p.Own) > 0 {
			return nil, nil
		} else if algo != nil && q.takes(algo) {
			q.algo = *algo
			return q.run, d.warm(p, key, *algo)
		}
	}
	list, err := q.candidates(tried)
	if err != nil || len(list) == 0 {
		return nil, d.unlessOwn(p, err)
	}
	best, micro, err := d.try(p, list)
	switch {
	case err != nil: // no memory to try in: the library's own first choice
		q.algo = list[0].algo
		return q.run, nil
	case best == nil:
		d.lib.choices.keep(key, choiceOf(nil, micro))
		return nil, nil
	}
	d.lib.choices.keep(key, choiceOf(best, micro))
	q.algo = *best
	return q.run, nil
}

// warm runs a product once whose way was known, so that the library's kernel is there before it is recorded in a graph.
func (d *Device) warm(p *abi.Product, key string, algo blasAlgo) error {
	l := &d.lib
	if l.warm[key] {
		return nil
	}
	if l.warm == nil {
		l.warm = map[string]bool{}
	}
	l.warm[key] = true
	x, err := d.newScratch(p)
	if err != nil {
		return nil // no room for it: the first run loads the kernel
	}
	defer d.drv.Free(x.all)
	q, err := l.blas.newProduct(p, x.places)
	if err != nil {
		return err
	}
	defer q.close()
	q.algo = algo
	return errors.Join(q.run(d.main), d.main.Sync())
}

// unlessOwn is the error of a product that the library does not do, unless there are own kernels, which do it then.
func (d *Device) unlessOwn(p *abi.Product, err error) error {
	if len(p.Own) > 0 {
		return nil
	}
	if err == nil {
		err = errors.New("cuBLASLt has no such product")
	}
	return fmt.Errorf("%s: %w", problem(p), err)
}

// problem tells products apart for which the best way may differ.
func problem(p *abi.Product) string {
	s := fmt.Sprintf("%dx%dx%dx%d trans %t %t ld %d %d %d stride %d %d %d %s %s %s %s %s add %t %s", p.Batch, p.M, p.N, p.K, p.TransA, p.TransB, p.LDA, p.LDB, p.LDC,
		p.StrideA, p.StrideB, p.StrideC, p.TypeA, p.TypeB, p.TypeC, p.TypeBias, p.Compute, p.Accumulate, p.Epilogue)
	for _, l := range p.Own {
		s += fmt.Sprint(" own ", l.Grid, l.Block, l.Shared)
	}
	return s
}

// places are where the operands of p lie in the arena.
func (d *Device) places(p *abi.Product) places {
	at := func(offset int) uintptr {
		if offset < 0 {
			return 0
		}
		return d.Address(offset)
	}
	x := places{a: at(p.A), b: at(p.B), c: at(p.C), bias: at(p.Bias), aux: at(p.Aux)}
	switch {
	case p.Accumulate:
		x.add = x.c
	case hasWord(p.Epilogue, "add"):
		x.add = at(p.Add)
	}
	return x
}

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

// try runs the library's ways and gtc's own, and gives the fastest's algorithm, nil for gtc's own, and its microseconds.
func (d *Device) try(p *abi.Product, list []blasResult) (best *blasAlgo, micro float64, err error) {
	x, err := d.newScratch(p)
	if err != nil {
		return nil, 0, err
	}
	defer d.drv.Free(x.all)
	defer d.main.Sync()
	least := time.Duration(math.MaxInt64)
	if len(p.Own) > 0 {
		w := &work{}
		for i := range p.Own {
			l, err := d.launch(&p.Own[i], -1)
			if err != nil {
				return nil, 0, err
			}
			for j, offset := range p.Own[i].Args {
				if offset >= 0 {
					l.values[j] = x.moved(p, offset)
				}
			}
			w.launches = append(w.launches, *l)
		}
		for i := range w.launches { // the values were copied with their launch
			for j := range w.launches[i].values {
				w.launches[i].params[j] = unsafe.Pointer(&w.launches[i].values[j])
			}
		}
		if least, err = d.clock(func() error { return w.Run(d.main) }); err != nil {
			return nil, 0, err
		}
	}
	q, err := d.lib.blas.newProduct(p, x.places)
	if err != nil {
		return nil, 0, err
	}
	defer q.close()
	for i := range list {
		q.algo = list[i].algo
		t, err := d.clock(func() error { return q.run(d.main) })
		var f *failure
		if errors.As(err, &f) {
			return nil, 0, err // of the device, not of this way
		}
		if err == nil && t < least {
			least, best = t, &list[i].algo
		}
	}
	if least == math.MaxInt64 {
		return nil, 0, errors.New("no algorithm runs")
	}
	return best, float64(least.Nanoseconds()) / 1000, nil
}

// clock is how long run's work takes, on the device alone: the runs are recorded in a graph, whose launch costs once.
func (d *Device) clock(run func() error) (time.Duration, error) {
	if err := run(); err != nil { // loads what is to be loaded
		return 0, err
	}
	if err := d.main.Sync(); err != nil {
		return 0, err
	}
	n := 1
	for {
		t, err := d.clockGraph(n, run)
		if err != nil || n == mostRuns || t >= patience/2 {
			return t / time.Duration(n), err
		}
		n = min(mostRuns, n*max(2, int(patience/max(t, time.Microsecond))))
	}
}

// clockGraph is the least of three times of n runs.
func (d *Device) clockGraph(n int, run func() error) (time.Duration, error) {
	if err := d.main.Capture(); err != nil {
		return 0, err
	}
	var failed error
	for range n {
		if failed = run(); failed != nil {
			break
		}
	}
	g, err := d.main.End()
	if err := errors.Join(failed, err); err != nil {
		return 0, err
	}
	defer d.Drop(g)
	least := time.Duration(math.MaxInt64)
	for range 3 {
		start := time.Now()
		if err := errors.Join(d.main.Launch(g), d.main.Sync()); err != nil {
			return 0, err
		}
		least = min(least, time.Since(start))
	}
	return least, nil
}
