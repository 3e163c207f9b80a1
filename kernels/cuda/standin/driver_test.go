package standin

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// The tests' driver is lazy, so that nothing happens before it must, has two devices, the second of which a fault spoils, and
// little memory.
const memory = 64 << 20

func open2(t *testing.T) *driver.Driver {
	t.Helper()
	if _, err := Compiler(); err != nil {
		t.Skip(err)
	}
	path, err := Driver(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{driver.Variable: path, "GTC_STANDIN_ORDER": "lazy", "GTC_STANDIN_DEVICES": "2",
		"GTC_STANDIN_MEMORY": fmt.Sprint(memory), "CUDA_VISIBLE_DEVICES": "0,1"} {
		os.Setenv(name, value) // the driver is opened once for all tests
	}
	d, err := driver.Open()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const kernels = `#include "gtc.cuh"
extern "C" __global__ void __launch_bounds__(256) add_one(float* x) { x[blockIdx.x * 256 + threadIdx.x] += 1; }
extern "C" __global__ void __launch_bounds__(256) twice(float* x) { x[blockIdx.x * 256 + threadIdx.x] *= 2; }
extern "C" __global__ void __launch_bounds__(32) beyond(float* x) { x[threadIdx.x + 1024] = 1; }
extern "C" __global__ void __launch_bounds__(32) dynamic(float* x) {
	GTC_DYNAMIC_SHARED(float, s);
	s[threadIdx.x] = x[threadIdx.x];
	gtc::sync();
	x[threadIdx.x] = s[31 - threadIdx.x];
}
`

// gpu is a device with the kernels.
type gpu struct {
	t       *testing.T
	d       *driver.Driver
	streams [2]uintptr
	module  uintptr
	kernels map[string]uintptr
}

func newGPU(t *testing.T, number int) *gpu {
	runtime.LockOSThread() // contexts belong to threads
	g := &gpu{t: t, d: open2(t), kernels: map[string]uintptr{}}
	dev, err := g.d.Device(number)
	g.check(err)
	ctx, err := g.d.Retain(dev)
	g.check(err)
	g.check(g.d.SetContext(ctx))
	image, err := Image(context.Background(), kernels, Options{Checked: true})
	g.check(err)
	g.module, err = g.d.Load(image)
	g.check(err)
	for _, name := range []string{"add_one", "twice", "beyond", "dynamic"} {
		g.kernels[name], err = g.d.Function(g.module, name)
		g.check(err)
	}
	for i := range g.streams {
		g.streams[i], err = g.d.NewStream(0)
		g.check(err)
	}
	return g
}

func (g *gpu) check(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// launch starts a kernel on a stream.
func (g *gpu) launch(name string, blocks, threads, shared int, at, stream uintptr) error {
	args := [1]unsafe.Pointer{unsafe.Pointer(&at)}
	return g.d.Call(driver.LaunchKernel, g.kernels[name], uintptr(blocks), 1, 1, uintptr(threads), 1, 1, uintptr(shared), stream,
		uintptr(unsafe.Pointer(&args)), 0)
}

func (g *gpu) event() uintptr {
	var e uintptr
	g.check(g.d.Call(driver.EventCreate, uintptr(unsafe.Pointer(&e)), 2))
	return e
}

// has compares the first number of a buffer on the device, after what is on stream s.
func (g *gpu) has(at, s uintptr, want float32) {
	g.t.Helper()
	out := make([]byte, 4)
	g.check(g.d.ToHost(out, at, s))
	g.check(g.d.Synchronize(s))
	var got float32
	binary.Decode(out, binary.LittleEndian, &got)
	if got != want {
		g.t.Errorf("the number is %g, want %g", got, want)
	}
}

func code(err error) int32 {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

func (g *gpu) wants(name string, want int32, err error) {
	g.t.Helper()
	if code(err) != want {
		g.t.Errorf("%s: %v, want code %d", name, err, want)
	}
}

func TestStreamsAndEvents(t *testing.T) {
	g := newGPU(t, 0)
	at, err := g.d.Alloc(4096)
	g.check(err)
	in, out := make([]byte, 4096), bytes.Repeat([]byte{7}, 4096)
	a, b, e := g.streams[0], g.streams[1], g.event()
	g.check(g.d.ToDevice(at, in, a))
	g.check(g.launch("add_one", 4, 256, 0, at, a))
	g.check(g.d.Call(driver.EventRecord, e, a))
	g.check(g.d.Call(driver.StreamWaitEvent, b, e, 0))
	g.check(g.launch("twice", 4, 256, 0, at, b))
	g.check(g.d.ToHost(out, at, b))
	time.Sleep(5 * time.Millisecond)
	if out[0] != 7 {
		t.Error("a lazy stream went ahead by itself")
	}
	g.wants("query", 600, g.d.Call(driver.EventQuery, e))
	g.check(g.d.Synchronize(b)) // which pulls the other stream along
	if want := []byte{0, 0, 0, 0x40}; !bytes.Equal(out[4092:], want) {
		t.Errorf("0 + 1 doubled is %x, want %x", out[4092:], want)
	}
	g.check(g.d.Call(driver.EventQuery, e))
	g.check(g.d.Call(driver.MemsetD32Async, at, 0x3f800000, 1024, a))
	g.has(at, a, 1)
	g.check(g.d.Free(at))
}

func TestGraphs(t *testing.T) {
	g := newGPU(t, 0)
	at, err := g.d.Alloc(4096)
	g.check(err)
	a, b, fork, join := g.streams[0], g.streams[1], g.event(), g.event()
	g.check(g.d.Call(driver.MemsetD8Async, at, 0, 4096, a))
	g.check(g.d.Synchronize(a))
	var graph, exec uintptr
	capture := func(joined bool) error {
		g.check(g.d.Call(driver.StreamBeginCapture, a, 0))
		g.check(g.launch("add_one", 4, 256, 0, at, a))
		g.check(g.d.Call(driver.EventRecord, fork, a))
		g.check(g.d.Call(driver.StreamWaitEvent, b, fork, 0))
		g.check(g.launch("twice", 4, 256, 0, at, b))
		g.check(g.d.Call(driver.EventRecord, join, b))
		if joined {
			g.check(g.d.Call(driver.StreamWaitEvent, a, join, 0))
			g.check(g.launch("add_one", 4, 256, 0, at, a))
		}
		return g.d.Call(driver.StreamEndCapture, a, uintptr(unsafe.Pointer(&graph)))
	}
	g.wants("a fork that is not joined", 904, capture(false))
	g.check(capture(true))
	g.has(at, a, 0) // captured, not run
	g.check(g.d.Call(driver.GraphInstantiate, uintptr(unsafe.Pointer(&exec)), graph, 0))
	g.check(g.d.Call(driver.GraphDestroy, graph))
	g.check(g.d.Call(driver.GraphLaunch, exec, a))
	g.check(g.d.Call(driver.GraphLaunch, exec, a))
	g.has(at, a, (0*2+3)*2+3)
	g.check(g.d.Call(driver.StreamBeginCapture, a, 0))
	g.wants("waiting while capturing", 900, g.d.Synchronize(a))
	g.wants("its end", 901, g.d.Call(driver.StreamEndCapture, a, uintptr(unsafe.Pointer(&graph))))
	g.check(g.d.Call(driver.StreamBeginCapture, a, 0))
	_, err = g.d.Alloc(64)
	g.wants("allocating while capturing", 900, err)
	g.check(g.d.Call(driver.StreamEndCapture, a, uintptr(unsafe.Pointer(&graph))))
	g.check(g.d.Free(at))
}

func TestRefusals(t *testing.T) {
	g := newGPU(t, 0)
	s := g.streams[0]
	_, err := g.d.Alloc(memory + 1)
	g.wants("more memory than there is", 2, err)
	at, err := g.d.Alloc(memory - 4096)
	g.check(err)
	if free, total, err := g.d.Memory(); err != nil || free != 4096 || total != memory {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
	_, err = g.d.Alloc(8192)
	g.wants("more memory than is left", 2, err)
	_, err = g.d.Load([]byte("// PTX\x00 and enough bytes for a header, so that it can be looked at: 0123456789"))
	g.wants("PTX", 200, err)
	_, err = g.d.Function(g.module, "absent")
	g.wants("no such kernel", 500, err)
	g.wants("a stream that is none", 400, g.d.Synchronize(12345))
	g.wants("a copy beyond the end", 1, g.d.ToHost(make([]byte, 8), at+memory-4096-4, s))
	g.wants("more threads than 1024", 1, g.launch("add_one", 1, 2048, 0, at, s))
	g.wants("more threads than promised", 701, g.launch("beyond", 1, 64, 0, at, s))
	g.wants("shared memory without leave", 1, g.launch("dynamic", 1, 32, 64<<10, at, s))
	g.wants("more shared memory than there is", 1, g.d.Call(driver.FuncSetAttribute, g.kernels["dynamic"], 8, 300<<10))
	g.check(g.d.Call(driver.FuncSetAttribute, g.kernels["dynamic"], 8, 64<<10))
	g.check(g.launch("dynamic", 1, 32, 64<<10, at, s))
	g.check(g.d.Synchronize(s))
	g.check(g.d.Free(at))
	g.wants("freed twice", 1, g.d.Free(at))
}

// TestFaultSpoilsTheContext: after a kernel that writes outside of memory, every call on the device fails. That lasts as long
// as the process, so the test has one of its own and can run more than once.
func TestFaultSpoilsTheContext(t *testing.T) {
	const child = "GTC_TEST_SPOIL"
	if os.Getenv(child) == "" {
		if _, err := Compiler(); err != nil {
			t.Skip(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestFaultSpoilsTheContext$", "-test.count=1", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("--- PASS: TestFaultSpoilsTheContext")) {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	g := newGPU(t, 1)
	s := g.streams[0]
	at, err := g.d.Alloc(4096)
	g.check(err)
	g.check(g.launch("beyond", 1, 32, 0, at, s))
	err = g.d.Synchronize(s)
	g.wants("waiting", 700, err)
	if err == nil || !strings.Contains(err.Error(), "outside of its memory") {
		t.Errorf("the error is %v", err)
	}
	g.wants("launching", 700, g.launch("add_one", 1, 256, 0, at, s))
	_, err = g.d.Alloc(64)
	g.wants("allocating", 700, err)
}
