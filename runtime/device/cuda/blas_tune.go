package cuda

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
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
	l.blas, l.choices = b, openChoices(d.info.Name, driver.Release(d.drv.Version), b.version)
	return b, nil
}

// product prepares a matrix product for cuBLASLt; nil where gtc's own kernels do it, because there is no library, or it has no
// such product, or they were faster when both were tried. Trying takes place here, so that it is no part of a recorded graph.
func (d *Device) product(p *abi.Product) (func(s *stream) error, error) {
	b, err := d.cublas()
	if b == nil || err != nil {
		return nil, err
	}
	key := problem(p)
	if run, done, err := d.known(p, key); done || err != nil {
		return run, err
	}
	var run func(s *stream) error
	d.lib.choices.alone(func() {
		var done bool
		if run, done, err = d.known(p, key); !done && err == nil {
			run, err = d.chosen(p, key)
		}
	})
	return run, err
}

// known prepares p by a choice that is there; done tells whether one is.
func (d *Device) known(p *abi.Product, key string) (run func(s *stream) error, done bool, err error) {
	c, ok := d.lib.choices.list[key]
	if !ok {
		return nil, false, nil
	}
	algo, _ := c.algo()
	if algo == nil {
		return nil, len(whole(p)) > 0, nil
	}
	w, err := d.ready(p, c.Apart, *algo)
	if w == nil || err != nil {
		return nil, false, err
	}
	return w.run, true, d.warm(p, key, c.Apart, *algo)
}

// chosen tries p out, keeps the choice and prepares it.
func (d *Device) chosen(p *abi.Product, key string) (func(s *stream) error, error) {
	best, keep, err := d.try(p)
	if err != nil || best == nil {
		if err == nil {
			err = errors.New("cuBLASLt has no such product")
		}
		return nil, d.unlessOwn(p, err)
	}
	if keep {
		d.lib.choices.keep(key, *best)
	}
	algo, _ := best.algo()
	if algo == nil {
		return nil, nil
	}
	w, err := d.ready(p, best.Apart, *algo)
	if err != nil || w == nil {
		return nil, d.unlessOwn(p, err)
	}
	return w.run, nil
}

// way is a product of the library and what gtc's kernels do after it.
type way struct {
	q     *product
	after work
}

func (w *way) run(s *stream) error {
	if err := w.q.run(s); err != nil {
		return err
	}
	return w.after.Run(s)
}

// without is p for a library that makes no sums.
func without(p *abi.Product) *abi.Product {
	q := *p
	q.Epilogue = strings.Join(slices.DeleteFunc(words(p.Epilogue), func(w string) bool { return w == "gradn" || w == "gradm" }), "_")
	q.Bias, q.TypeBias = abi.ArgNil, ""
	return &q
}

// ready makes a way with an algorithm, on the arena; nil where the library has it no more.
func (d *Device) ready(p *abi.Product, apart bool, algo blasAlgo) (*way, error) {
	w, err := d.way(p, apart, d.places(p), nil)
	if w == nil || err != nil {
		return nil, err
	}
	d.lib.products = append(d.lib.products, w.q)
	if !w.q.takes(&algo) {
		return nil, nil
	}
	w.q.algo = algo
	return w, nil
}

// way makes the library's product for p, with its sums apart or not; nil where it has none. Kernels after it work on x, if there
// is one, or on the arena.
func (d *Device) way(p *abi.Product, apart bool, at places, x *scratch) (*way, error) {
	w := &way{}
	asked := p
	if apart {
		if p.OwnSums == 0 {
			return nil, nil
		}
		asked = without(p)
		var err error
		if w.after.launches, err = d.own(p, p.Own[len(p.Own)-p.OwnSums:], x); err != nil {
			return nil, err
		}
	}
	var err error
	if w.q, err = d.lib.blas.newProduct(asked, at); w.q == nil || err != nil {
		return nil, err
	}
	return w, nil
}

// own prepares launches of gtc's own kernels, on x if there is one.
func (d *Device) own(p *abi.Product, list []abi.Launch, x *scratch) ([]launch, error) {
	var out []launch
	for i := range list {
		l, err := d.launch(&list[i], -1)
		if err != nil {
			return nil, err
		}
		for j, offset := range list[i].Args {
			if x != nil && offset >= 0 {
				l.values[j] = x.moved(p, offset)
			}
		}
		out = append(out, *l) // params point to values, which both share
	}
	return out, nil
}

// warm runs a product once whose way was known, so that the library's kernel is there before it is recorded in a graph.
func (d *Device) warm(p *abi.Product, key string, apart bool, algo blasAlgo) error {
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
	w, err := d.way(p, apart, x.places, x)
	if w == nil || err != nil {
		return err
	}
	defer w.q.close()
	w.q.algo = algo
	return errors.Join(w.run(d.main), d.main.Sync())
}

// unlessOwn is the error of a product that the library does not do, unless there are own kernels, which do it then.
func (d *Device) unlessOwn(p *abi.Product, err error) error {
	if len(whole(p)) > 0 {
		return nil
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

// try runs the library's ways and gtc's own, and gives the fastest; nil where there is none. Without memory to try in it is the
// library's own first choice, which is not to be kept.
func (d *Device) try(p *abi.Product) (best *choice, keep bool, err error) {
	x, err := d.newScratch(p)
	if err != nil {
		return d.untried(p)
	}
	defer d.drv.Free(x.all)
	defer d.main.Sync()
	consider := func(algo *blasAlgo, apart bool, run func(s *stream) error) error {
		t, err := d.clock(func() error { return run(d.main) })
		var f *failure
		if errors.As(err, &f) {
			return err // of the device, not of this way
		}
		if micro := float64(t.Nanoseconds()) / 1000; err == nil && (best == nil || micro < best.Micro) {
			c := choiceOf(algo, micro)
			c.Apart = apart
			best = &c
		}
		return nil
	}
	if list := whole(p); len(list) > 0 {
		w := &work{}
		if w.launches, err = d.own(p, list, x); err != nil {
			return nil, false, err
		}
		if err := consider(nil, false, func(s *stream) error { return w.Run(s) }); err != nil {
			return nil, false, err
		}
	}
	for _, apart := range []bool{false, true} {
		w, err := d.way(p, apart, x.places, x)
		if err != nil {
			return nil, false, err
		}
		if w == nil {
			continue
		}
		list, _ := w.q.candidates(tried) // none: the library has no such product
		for i := range list {
			w.q.algo = list[i].algo
			if err := consider(&list[i].algo, apart, w.run); err != nil {
				w.q.close()
				return nil, false, err
			}
		}
		w.q.close()
	}
	return best, true, nil
}

// untried is the library's first choice.
func (d *Device) untried(p *abi.Product) (*choice, bool, error) {
	for _, apart := range []bool{false, true} {
		w, err := d.way(p, apart, d.places(p), nil)
		if err != nil {
			return nil, false, err
		}
		if w == nil {
			continue
		}
		list, _ := w.q.candidates(1)
		w.q.close()
		if len(list) > 0 {
			c := choiceOf(&list[0].algo, 0)
			c.Apart = apart
			return &c, false, nil
		}
	}
	return nil, false, nil
}

// clock is how long run's work takes, on the device and by its clock: the runs are recorded in a graph, whose launch costs once.
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
	if err := d.clockEvents(); err != nil {
		return 0, err
	}
	least := time.Duration(math.MaxInt64)
	for range 3 {
		if err := errors.Join(d.main.Record(d.began), d.main.Launch(g), d.main.Record(d.ended), d.main.Sync()); err != nil {
			return 0, err
		}
		var ms float32
		if err := d.drv.Call(driver.EventElapsedTime, uintptr(unsafe.Pointer(&ms)), uintptr(d.began), uintptr(d.ended)); err != nil {
			return 0, d.during("reading the clock", err)
		}
		least = min(least, time.Duration(float64(ms)*float64(time.Millisecond)))
	}
	return least, nil
}

// clockEvents makes the events between which time is measured.
func (d *Device) clockEvents() (err error) {
	if d.began == 0 {
		d.began, err = d.newEvent(0)
	}
	if err == nil && d.ended == 0 {
		d.ended, err = d.newEvent(0)
	}
	return err
}
