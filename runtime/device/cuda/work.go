package cuda

import (
	"fmt"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// work implements device.Work: a library's call, or launches.
type work struct {
	library  func(s *stream) error
	launches []launch
}

// launch is a kernel with its arguments: values, to which params point as the driver wants it.
type launch struct {
	kernel      uintptr
	grid, block [3]int
	shared      int
	values      []uintptr
	params      []unsafe.Pointer
}

// Prepare implements device.Device.
func (d *Device) Prepare(t *device.Task) (device.Work, error) {
	w := &work{}
	own := t.Launches
	var err error
	switch {
	case t.Product != nil:
		own = whole(t.Product)
		w.library, err = d.product(t.Product)
	case t.Convolution != nil:
		own = t.Convolution.Own
		w.library, err = d.convolution(t.Convolution)
	}
	if err != nil || w.library != nil {
		return w, err
	}
	if len(own) == 0 && t.Launches == nil {
		return nil, fmt.Errorf("this call needs a library of NVIDIA that is missing: %s", missing(t))
	}
	for i := range own {
		l, err := d.launch(&own[i], t.Status)
		if err != nil {
			return nil, err
		}
		w.launches = append(w.launches, *l)
	}
	return w, nil
}

// whole are the launches that do all of a product.
func whole(p *abi.Product) []abi.Launch { return p.Own[:max(0, len(p.Own)-p.OwnSums)] }

// missing is the library that does a task.
func missing(t *device.Task) string {
	if t.Product != nil {
		return "libcublasLt"
	}
	return "libcudnn"
}

// launch prepares one launch.
func (d *Device) launch(a *abi.Launch, status int) (*launch, error) {
	if a.Kernel < 0 || a.Kernel >= len(d.kernels) {
		return nil, fmt.Errorf("BUG: there is no kernel %d of %d", a.Kernel, len(d.kernels))
	}
	name := d.names[a.Kernel]
	l := &launch{kernel: d.kernels[a.Kernel], grid: a.Grid, block: a.Block, shared: a.Shared}
	for i := range 3 {
		l.grid[i], l.block[i] = max(l.grid[i], 1), max(l.block[i], 1)
	}
	if err := d.allow(l, name); err != nil {
		return nil, err
	}
	var table uintptr
	if len(a.Table) > 0 {
		var err error
		if table, err = d.table(a.Table); err != nil {
			return nil, err
		}
	}
	l.values, l.params = make([]uintptr, len(a.Args)), make([]unsafe.Pointer, len(a.Args)+1)
	for i, at := range a.Args {
		switch {
		case at == abi.ArgNil:
		case at == abi.ArgStatus && status >= 0:
			l.values[i] = d.Address(status)
		case at == abi.ArgTable && table != 0:
			l.values[i] = table
		case at == abi.ArgBase:
			l.values[i] = d.arena
		case at >= 0 && at <= d.size:
			l.values[i] = d.Address(at)
		default:
			return nil, fmt.Errorf("BUG: argument %d of kernel %s is at %d, outside the arena of %d bytes", i, name, at, d.size)
		}
		l.params[i] = unsafe.Pointer(&l.values[i])
	}
	return l, nil
}

// allow lets a kernel have as much dynamic shared memory as l asks for. Without it, that and what the kernel has of its own are
// 48 KiB at most.
func (d *Device) allow(l *launch, name string) error {
	if l.shared <= d.shared[l.kernel] {
		return nil
	}
	if l.shared > d.sharedMax {
		return fmt.Errorf("kernel %s needs %d bytes of shared memory for a block, but device %d (%s) has %d", name, l.shared, d.info.Number, d.info.Name, d.sharedMax)
	}
	const maxDynamicShared = 8 // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
	if err := d.drv.Call(driver.FuncSetAttribute, l.kernel, maxDynamicShared, uintptr(l.shared)); err != nil {
		return d.during("preparing kernel "+name, err)
	}
	d.shared[l.kernel] = l.shared
	return nil
}

// table copies a table to the device.
func (d *Device) table(t []uint64) (uintptr, error) {
	at, err := d.drv.Alloc(8 * len(t))
	if err != nil {
		return 0, d.during("making a table", err)
	}
	d.tables = append(d.tables, at)
	if err := d.drv.ToDevice(at, unsafe.Slice((*byte)(unsafe.Pointer(&t[0])), 8*len(t)), d.main.handle); err != nil {
		return 0, d.during("making a table", err)
	}
	return at, d.main.Sync()
}

// Run implements device.Work.
func (w *work) Run(on device.Stream) error {
	s := on.(*stream)
	if w.library != nil {
		return w.library(s)
	}
	for i := range w.launches {
		if err := s.launch(&w.launches[i]); err != nil {
			return err
		}
	}
	return nil
}

// launch queues a kernel. It allocates nothing.
func (s *stream) launch(l *launch) error {
	s.args = [11]uintptr{l.kernel, uintptr(l.grid[0]), uintptr(l.grid[1]), uintptr(l.grid[2]), uintptr(l.block[0]), uintptr(l.block[1]), uintptr(l.block[2]),
		uintptr(l.shared), s.handle, uintptr(unsafe.Pointer(&l.params[0])), 0}
	return s.call(driver.LaunchKernel, 11)
}
