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

// dnnLibrary is cuDNN as a device uses it.
type dnnLibrary struct {
	looked  bool
	lib     *dnn // nil where it is not here
	choices *choices
	list    []*convolution
	warm    map[string]bool // convolutions whose kernels are loaded
}

func (l *dnnLibrary) close() {
	for _, q := range l.list {
		q.close()
	}
	if l.lib != nil {
		l.lib.call(dnnDestroy, l.lib.handle)
	}
}

// cudnn opens the library the first time; see cublas.
func (d *Device) cudnn() (*dnn, error) {
	l := &d.lib.dnn
	if l.looked {
		return l.lib, nil
	}
	l.looked = true
	named := os.Getenv(dnnVariable)
	if named == "off" || named == "" && d.info.Image == "host" {
		return nil, nil
	}
	n, err := openDnn()
	if err != nil {
		if named != "" {
			return nil, err
		}
		return nil, nil
	}
	l.lib, l.warm = n, map[string]bool{}
	l.choices = choicesIn(fmt.Sprintf("convolutions %s cuda%s cudnn%d", d.info.Name, driver.Release(d.drv.Version), n.version))
	return n, nil
}

// convolution prepares a convolution for cuDNN; nil where gtc's own kernels do it, because there is no library, or it has no
// such convolution, or they were faster when both were tried.
func (d *Device) convolution(c *abi.Convolution) (func(s *stream) error, error) {
	n, err := d.cudnn()
	if n == nil || err != nil {
		return nil, err
	}
	q, err := n.newConvolution(c, d.convPlaces(c))
	if q == nil || err != nil {
		return nil, unlessOwnConv(c, err)
	}
	l := &d.lib.dnn
	l.list = append(l.list, q)
	list, err := q.candidates(tried)
	if err != nil || len(list) == 0 {
		return nil, unlessOwnConv(c, err)
	}
	key := convProblem(c)
	if ch, ok := l.choices.list[key]; ok {
		algo, _ := ch.algo()
		if algo == nil && len(c.Own) > 0 {
			return nil, nil
		}
		for _, p := range list {
			if algo != nil && uint64(p.algo) == algo[0] {
				q.use(int(p.algo))
				return q.run, d.warmConv(c, key, q.algo)
			}
		}
	}
	best, micro, err := d.tryConv(c, list)
	switch {
	case err != nil: // no memory to try in: the library's own first choice
		q.use(int(list[0].algo))
		return q.run, nil
	case best < 0:
		l.choices.keep(key, choiceOf(nil, micro))
		return nil, nil
	}
	l.warm[key] = true
	l.choices.keep(key, choiceOf(&blasAlgo{uint64(best)}, micro))
	q.use(best)
	return q.run, nil
}

// unlessOwnConv is the error of a convolution that the library does not do, unless there are own kernels, which do it then.
func unlessOwnConv(c *abi.Convolution, err error) error {
	if len(c.Own) > 0 {
		return nil
	}
	if err == nil {
		err = errors.New("cuDNN has no such convolution")
	}
	return fmt.Errorf("%s: %w", convProblem(c), err)
}

// convProblem tells convolutions apart for which the best way may differ.
func convProblem(c *abi.Convolution) string {
	s := fmt.Sprintf("%s %v %s %s bias %t room %d", c.Kind, c.Ints, c.Type, c.Compute, c.Bias >= 0, c.WorkBytes)
	for _, l := range c.Own {
		s += fmt.Sprint(" own ", l.Grid, l.Block, l.Shared)
	}
	return s
}

// convPlaces are where the operands of c lie in the arena.
func (d *Device) convPlaces(c *abi.Convolution) convPlaces {
	at := func(offset int) uintptr {
		if offset < 0 {
			return 0
		}
		return d.Address(offset)
	}
	return convPlaces{at(c.A), at(c.B), at(c.C), at(c.Bias), at(c.Workspace)}
}

// convScratch is memory to try a convolution in: its operands, filled with small numbers, and its workspace, one after the other.
type convScratch struct {
	convPlaces
	all   uintptr
	sizes [5]int // of A, B, C, bias and workspace
}

func (d *Device) newConvScratch(c *abi.Convolution) (*convScratch, error) {
	x, w, y := convBytes(c)
	s := &convScratch{sizes: [3][5]int{{x, w, y}, {y, w, x}, {x, y, w}}[convKinds[c.Kind]]}
	s.sizes[3], s.sizes[4] = 4*c.Ints[4], c.WorkBytes
	n := 0
	var at [5]int
	for i, size := range s.sizes {
		at[i] = n
		n += (size + 255) &^ 255
	}
	all, err := d.drv.Alloc(n)
	if err != nil {
		return nil, err
	}
	s.all = all
	s.convPlaces = convPlaces{all, all + uintptr(at[1]), all + uintptr(at[2]), 0, all + uintptr(at[4])}
	if c.Bias >= 0 {
		s.bias = all + uintptr(at[3])
	}
	if err := d.drv.Call(driver.MemsetD8Async, all, filler, uintptr(n), d.main.handle); err != nil {
		d.drv.Free(all)
		return nil, err
	}
	return s, nil
}

// moved is where an own kernel's argument lies when it works on s; kernels may begin within an operand.
func (s *convScratch) moved(c *abi.Convolution, offset int) uintptr {
	for i, from := range []int{c.A, c.B, c.C, c.Bias, c.Workspace} {
		if from >= 0 && offset >= from && offset < from+max(s.sizes[i], 1) {
			return []uintptr{s.a, s.b, s.c, s.bias, s.work}[i] + uintptr(offset-from)
		}
	}
	return s.work
}

// warmConv runs a convolution once whose way was known, so that the library's kernel is there before it is recorded in a graph.
func (d *Device) warmConv(c *abi.Convolution, key string, algo int) error {
	l := &d.lib.dnn
	if l.warm[key] {
		return nil
	}
	l.warm[key] = true
	x, err := d.newConvScratch(c)
	if err != nil {
		return nil // no room for it: the first run loads the kernel
	}
	defer d.drv.Free(x.all)
	q, err := l.lib.newConvolution(c, x.convPlaces)
	if err != nil {
		return err
	}
	defer q.close()
	q.use(algo)
	return errors.Join(q.run(d.main), d.main.Sync())
}

// tryConv runs the library's ways and gtc's own, and gives the fastest's algorithm, -1 for gtc's own, and its microseconds.
func (d *Device) tryConv(c *abi.Convolution, list []dnnPerf) (best int, micro float64, err error) {
	x, err := d.newConvScratch(c)
	if err != nil {
		return 0, 0, err
	}
	defer d.drv.Free(x.all)
	defer d.main.Sync()
	least := time.Duration(math.MaxInt64)
	best = -1
	if len(c.Own) > 0 {
		w, err := d.ownConv(c, x)
		if err != nil {
			return 0, 0, err
		}
		if least, err = d.clock(func() error { return w.Run(d.main) }); err != nil {
			return 0, 0, err
		}
	}
	q, err := d.lib.dnn.lib.newConvolution(c, x.convPlaces)
	if err != nil {
		return 0, 0, err
	}
	defer q.close()
	for _, p := range list {
		q.use(int(p.algo))
		t, err := d.clock(func() error { return q.run(d.main) })
		var f *failure
		if errors.As(err, &f) {
			return 0, 0, err // of the device, not of this way
		}
		if err == nil && t < least {
			least, best = t, int(p.algo)
		}
	}
	if least == math.MaxInt64 {
		return 0, 0, errors.New("no algorithm runs")
	}
	return best, float64(least.Nanoseconds()) / 1000, nil
}

// ownConv prepares gtc's own kernels to work on x.
func (d *Device) ownConv(c *abi.Convolution, x *convScratch) (*work, error) {
	w := &work{}
	for i := range c.Own {
		l, err := d.launch(&c.Own[i], -1)
		if err != nil {
			return nil, err
		}
		for j, offset := range c.Own[i].Args {
			if offset >= 0 {
				l.values[j] = x.moved(c, offset)
			}
		}
		for j := range l.values {
			l.params[j] = unsafe.Pointer(&l.values[j])
		}
		w.launches = append(w.launches, *l)
	}
	return w, nil
}
