// Package cuda runs programs on NVIDIA GPUs by way of the CUDA driver, without cgo: the arena lies in the GPU's memory, calls
// are launches of kernels that were compiled before, or of NVIDIA's libraries where those serve better.
package cuda

import (
	"errors"
	"fmt"

	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// oldest is the CUDA that a driver must support at least.
const oldest = 12000

// Device is an opened GPU. It implements device.Device.
type Device struct {
	drv     *driver.Driver
	dev     int32
	context uintptr
	info    device.Info
	bus     string // its place, by which the management library knows it

	modules   []uintptr
	kernels   []uintptr // by number of a launch
	names     []string
	shared    map[uintptr]int // dynamic shared memory that a kernel may have, where it asked for any
	sharedMax int
	arena     uintptr
	size      int
	main      *stream
	streams   []*stream
	events    []device.Event
	began     device.Event // this and ended stand about what is clocked; 0 before anything is
	ended     device.Event
	tables    []uintptr
	pinned    [][]byte
	lib       libraries
}

// Open implements device.Opener.
func Open(code *device.Code, o device.Options) (device.Device, error) {
	find := driver.Open
	if code.StandIn != nil {
		find = func() (*driver.Driver, error) { return driver.OpenStandIn(code.StandIn) }
	}
	drv, err := find()
	if err != nil {
		return nil, err
	}
	if need := max(code.Driver, oldest); drv.Version != 0 && drv.Version < need {
		return nil, fmt.Errorf("the NVIDIA driver is too old: it supports CUDA %s, this program needs %s or newer: update the driver",
			driver.Release(drv.Version), driver.Release(need))
	}
	d := &Device{drv: drv, shared: map[uintptr]int{}}
	if err := d.open(code, o); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Device) open(code *device.Code, o device.Options) (err error) {
	if err := d.choose(o.Number); err != nil {
		return err
	}
	if d.context, err = d.drv.Retain(d.dev); err != nil {
		return d.during("opening it", err)
	}
	if err = d.Bind(); err != nil {
		return d.during("opening it", err)
	}
	arena := o.ArenaBytes + o.RuntimeBytes
	if err := d.room(arena); err != nil { // before kernels are compiled, which may take a while
		return err
	}
	if d.main, err = d.newStream(0); err != nil {
		return d.during("opening it", err)
	}
	if err := d.load(code, o.Log); err != nil {
		return err
	}
	return d.allocate(arena)
}

// choose finds the device of a number and describes it.
func (d *Device) choose(number int) error {
	n, err := d.drv.Devices()
	if err != nil {
		return err
	}
	number %= max(n, 1)
	if d.dev, err = d.drv.Device(number); err != nil {
		return err
	}
	d.info = device.Info{Kind: "GPU", Number: number, Driver: "CUDA " + driver.Release(d.drv.Version), Library: "nccl"}
	name, err := d.drv.Name(d.dev)
	if err != nil {
		return err
	}
	d.info.Name = name
	major, err1 := d.drv.Attribute(driver.AttrMajor, d.dev)
	minor, err2 := d.drv.Attribute(driver.AttrMinor, d.dev)
	shared, err3 := d.drv.Attribute(driver.AttrSharedOptin, d.dev)
	id, err4 := d.drv.UUID(d.dev)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return d.during("asking what it is", err)
	}
	d.info.Arch, d.info.ID, d.sharedMax = fmt.Sprintf("sm_%d%d", major, minor), id, shared
	d.bus, _ = d.drv.BusID(d.dev) // without it there is no utilisation to show
	return nil
}

// room makes sure that n bytes are free.
func (d *Device) room(n int) error {
	free, total, err := d.drv.Memory()
	if err != nil {
		return d.during("asking for its memory", err)
	}
	d.info.Memory = total
	if n > free {
		return d.short(n, free, total)
	}
	return nil
}

// short says that n bytes are not to be had.
func (d *Device) short(n, free, total int) error {
	return fmt.Errorf("out of device memory: the plan needs %s, device %d (%s) has %s, of which %s are free: a smaller --batch, more ranks or other devices (CUDA_VISIBLE_DEVICES) help",
		gib(n), d.info.Number, d.info.Name, gib(total), gib(free))
}

// gib is a number of bytes in a unit for people.
func gib(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// allocate makes the arena, of zeros.
func (d *Device) allocate(n int) (err error) {
	d.arena, err = d.drv.Alloc(max(n, 1))
	var e *driver.Error
	if errors.As(err, &e) && e.OutOfMemory() {
		free, total, _ := d.drv.Memory()
		return d.short(n, free, total)
	}
	if err != nil {
		return d.during("making the arena", err)
	}
	d.size = n
	err = d.drv.Call(driver.MemsetD8Async, d.arena, 0, uintptr(max(n, 1)), d.main.handle)
	return d.during("clearing the arena", errors.Join(err, d.main.Sync()))
}

// Info implements device.Device.
func (d *Device) Info() device.Info { return d.info }

// Bind implements device.Device.
func (d *Device) Bind() error { return d.drv.SetContext(d.context) }

// Main implements device.Device.
func (d *Device) Main() device.Stream { return d.main }

// Address implements device.Device.
func (d *Device) Address(offset int) uintptr { return d.arena + uintptr(offset) }

// Put implements device.Device.
func (d *Device) Put(offset int, data []byte) error {
	if err := d.inside(offset, len(data)); err != nil {
		return err
	}
	if err := d.drv.ToDevice(d.Address(offset), data, d.main.handle); err != nil {
		return d.during("copying to it", err)
	}
	return d.main.Sync()
}

// Get implements device.Device.
func (d *Device) Get(data []byte, offset int) error {
	if err := d.inside(offset, len(data)); err != nil {
		return err
	}
	if err := d.drv.ToHost(data, d.Address(offset), d.main.handle); err != nil {
		return d.during("copying from it", err)
	}
	return d.main.Sync()
}

// inside checks that n bytes at offset are in the arena.
func (d *Device) inside(offset, n int) error {
	if offset < 0 || n < 0 || offset > d.size-n {
		return fmt.Errorf("BUG: %d bytes at %d leave the arena of %d", n, offset, d.size)
	}
	return nil
}

// Pinned implements device.Device.
func (d *Device) Pinned(n int) ([]byte, error) {
	b, err := d.drv.AllocHost(n)
	if err != nil {
		return nil, d.during(fmt.Sprintf("pinning %s of host memory", gib(n)), err)
	}
	d.pinned = append(d.pinned, b)
	return b, nil
}

// Close implements device.Device. After a failure of the device there is nothing to give back.
func (d *Device) Close() error {
	if d.context == 0 {
		return nil
	}
	var all error
	try := func(f driver.Func, args ...uintptr) { all = errors.Join(all, d.drv.Call(f, args...)) }
	for _, s := range d.streams {
		try(driver.StreamDestroy, s.handle)
	}
	for _, e := range d.events {
		try(driver.EventDestroy, uintptr(e))
	}
	for _, t := range d.tables {
		try(driver.MemFree, t)
	}
	for _, b := range d.pinned {
		all = errors.Join(all, d.drv.FreeHost(b))
	}
	d.lib.close()
	if d.arena != 0 {
		try(driver.MemFree, d.arena)
	}
	for _, m := range d.modules {
		try(driver.ModuleUnload, m)
	}
	try(driver.DevicePrimaryCtxRelease, uintptr(d.dev))
	*d = Device{drv: d.drv, info: d.info}
	return all
}

// failure is an error of this device.
type failure struct {
	text string
	err  error
	lost bool
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// Lost implements device.Failure.
func (f *failure) Lost() bool { return f.lost }

// during names the device in an error; nil stays nil. Answers that are no failures stay as they are.
func (d *Device) during(doing string, err error) error {
	if err == nil {
		return nil
	}
	var e *driver.Error // which is on the heap
	if !errors.As(err, &e) || e.NotReady() {
		return err
	}
	what := "failed"
	if e.Lost() {
		what = "is lost to this process"
	}
	return &failure{text: fmt.Sprintf("device %d (%s) %s, %s: %v", d.info.Number, d.info.Name, what, doing, err), err: err, lost: e.Lost()}
}
