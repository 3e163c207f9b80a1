package cuda

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// convolution is a convolution of cuDNN: descriptors, and the arguments of the call.
type convolution struct {
	n               *dnn
	kind            int
	x, w, y, bias   uintptr // descriptors; bias is 0 where there is none
	conv            uintptr
	one, zero       float32
	args            [13]uintptr
	add             [7]uintptr
	room            int // bytes of workspace
	algo, algoPlace int // its number, and its place among the arguments
}

// convPlaces are the addresses of a convolution's operands; bias is 0 for none.
type convPlaces struct{ a, b, c, bias, work uintptr }

// convBytes are the sizes of x, w and y.
func convBytes(c *abi.Convolution) (x, w, y int) {
	i, size := c.Ints, map[string]int{"f32": 4, "f16": 2, "bf16": 2}[c.Type]
	return size * i[0] * i[1] * i[2] * i[3], size * i[4] * i[1] / i[15] * i[5] * i[6], size * i[0] * i[4] * i[7] * i[8]
}

// symmetric reports whether the output's dims are those that the library gives to the padding before, on both sides.
func symmetric(c *abi.Convolution) bool {
	i := c.Ints
	out := func(in, kernel, pad, stride, dil int) int { return (in+2*pad-dil*(kernel-1)-1)/stride + 1 }
	return out(i[2], i[5], i[9], i[11], i[13]) == i[7] && out(i[3], i[6], i[10], i[12], i[14]) == i[8]
}

// newConvolution makes the descriptors of c. It is nil where the library has no such convolution.
func (n *dnn) newConvolution(c *abi.Convolution, at convPlaces) (*convolution, error) {
	kind, known := convKinds[c.Kind]
	if _, ok := dnnTypes[c.Type]; !ok || !known {
		return nil, fmt.Errorf("BUG: a convolution %s of %s", c.Kind, c.Type)
	}
	if !symmetric(c) {
		return nil, nil
	}
	q := &convolution{n: n, kind: kind, one: 1, room: c.WorkBytes}
	if err := q.describe(c); err != nil {
		q.close()
		return nil, err
	}
	one, zero := uintptr(unsafe.Pointer(&q.one)), uintptr(unsafe.Pointer(&q.zero))
	work, room := at.work, uintptr(c.WorkBytes)
	q.algoPlace = 7
	switch c.Kind {
	case "fwd": // A is x, B w, C y
		q.args = [13]uintptr{n.handle, one, q.x, at.a, q.w, at.b, q.conv, 0, work, room, zero, q.y, at.c}
	case "dgrad": // A is dy, B w, C dx
		q.args = [13]uintptr{n.handle, one, q.w, at.b, q.y, at.a, q.conv, 0, work, room, zero, q.x, at.c}
	case "wgrad": // A is x, B dy, C dw
		q.args = [13]uintptr{n.handle, one, q.x, at.a, q.y, at.b, q.conv, 0, work, room, zero, q.w, at.c}
	}
	if at.bias != 0 {
		q.add = [7]uintptr{n.handle, one, q.bias, at.bias, one, q.y, at.c}
	}
	return q, nil
}

// describe makes the descriptors.
func (q *convolution) describe(c *abi.Convolution) error {
	i, kind := c.Ints, uintptr(dnnTypes[c.Type])
	math := mathFMA
	switch {
	case c.Type != "f32":
		math = mathTensor
	case c.Compute == "tf32":
		math = mathDefault
	}
	tensor := func(to *uintptr, dims ...int) error {
		if err := q.n.call(tensorCreate, uintptr(unsafe.Pointer(to))); err != nil {
			return err
		}
		return q.n.call(tensorSet, *to, formatNCHW, kind, uintptr(dims[0]), uintptr(dims[1]), uintptr(dims[2]), uintptr(dims[3]))
	}
	steps := []func() error{
		func() error { return tensor(&q.x, i[0], i[1], i[2], i[3]) },
		func() error { return tensor(&q.y, i[0], i[4], i[7], i[8]) },
		func() error { return q.n.call(filterCreate, uintptr(unsafe.Pointer(&q.w))) },
		func() error {
			return q.n.call(filterSet, q.w, kind, formatNCHW, uintptr(i[4]), uintptr(i[1]/i[15]), uintptr(i[5]), uintptr(i[6]))
		},
		func() error { return q.n.call(convCreate, uintptr(unsafe.Pointer(&q.conv))) },
		func() error {
			return q.n.call(convSet, q.conv, uintptr(i[9]), uintptr(i[10]), uintptr(i[11]), uintptr(i[12]), uintptr(i[13]), uintptr(i[14]),
				crossCorrelation, uintptr(dnnTypes["f32"]))
		},
		func() error { return q.n.call(convGroups, q.conv, uintptr(i[15])) },
		func() error { return q.n.call(convMath, q.conv, uintptr(math)) },
	}
	if c.Bias >= 0 {
		steps = append(steps, func() error { return tensor(&q.bias, 1, i[4], 1, 1) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// descriptors are those that functions of the kind take, in their order.
func (q *convolution) descriptors() [4]uintptr {
	return [3][4]uintptr{{q.x, q.w, q.conv, q.y}, {q.w, q.y, q.conv, q.x}, {q.x, q.y, q.conv, q.w}}[q.kind]
}

// candidates asks the library for at most n ways to do the convolution, the best first as far as it knows: those that need no more
// workspace than there is and give the same bits on every run.
func (q *convolution) candidates(n int) ([]dnnPerf, error) {
	list, found, d := make([]dnnPerf, n), int32(0), q.descriptors()
	if err := q.n.call(convHeuristic+q.kind, q.n.handle, d[0], d[1], d[2], d[3], uintptr(n), uintptr(unsafe.Pointer(&found)), uintptr(unsafe.Pointer(&list[0]))); err != nil {
		return nil, err
	}
	list = list[:min(int(found), n)]
	return slices.DeleteFunc(list, func(p dnnPerf) bool {
		return p.status != 0 || int(p.memory) > q.room || p.deterministic != deterministic
	}), nil
}

// use takes an algorithm.
func (q *convolution) use(algo int) {
	q.algo = algo
	q.args[q.algoPlace] = uintptr(algo)
}

// run queues the convolution. It allocates nothing.
func (q *convolution) run(s *stream) error { return s.d.during("convolving", q.queue(s.handle)) }

func (q *convolution) queue(stream uintptr) error {
	err := q.n.call(dnnSetStream, q.n.handle, stream)
	if err == nil {
		err = q.n.call(convRun+q.kind, q.args[:]...)
	}
	if err == nil && q.add[0] != 0 {
		err = q.n.call(dnnAddTensor, q.add[:]...)
	}
	return err
}

func (q *convolution) close() {
	for _, x := range []struct {
		f  int
		at uintptr
	}{{tensorDestroy, q.x}, {tensorDestroy, q.y}, {tensorDestroy, q.bias}, {filterDestroy, q.w}, {convDestroy, q.conv}} {
		if x.at != 0 {
			q.n.call(x.f, x.at)
		}
	}
}
