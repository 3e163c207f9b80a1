package cuda

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/kernels/cuda/standin"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
	"github.com/gtc-compiler/gtc/runtime/device/devicetest"
)

// text is kernels on 256 floats: a sum of two, a doubling, one that refuses row 5, one that follows a table of offsets, and one
// that leaves its memory.
const text = `#include "gtc.cuh"
extern "C" __global__ void __launch_bounds__(256) add(const float* a, const float* b, float* c) { c[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x]; }
extern "C" __global__ void __launch_bounds__(256) twice(float* a) { a[threadIdx.x] *= 2; }
extern "C" __global__ void __launch_bounds__(256) refuse(gtc::i64* status) { if (threadIdx.x == 5) gtc::atomic_min(status, gtc::i64(5)); }
extern "C" __global__ void __launch_bounds__(256) all(char* base, const gtc::u64* table) {
	for (int i = 1; i <= (int)table[0]; i++) ((float*)(base + table[i]))[threadIdx.x] += 1;
}
extern "C" __global__ void __launch_bounds__(256) beyond(float* a) { a[threadIdx.x + (1 << 20)] = 1; }
`

var names = []string{"add", "twice", "refuse", "all", "beyond"}

const (
	kAdd = iota
	kTwice
	kRefuse
	kAll
	kBeyond
)

// kernels is the code of text for the stand-in.
func kernels(t *testing.T) *device.Code {
	t.Helper()
	image, err := standin.Image(context.Background(), text, standin.Options{Checked: true})
	if err != nil {
		t.Fatal(err)
	}
	return &device.Code{Kernels: names, Images: []device.Image{{Arch: "sm_90", Data: []byte("none")}, {Arch: "host", Data: image}}}
}

func opened(t *testing.T, arena int) *Device {
	t.Helper()
	useStandIn(t)
	runtime.LockOSThread()
	d, err := Open(kernels(t), device.Options{ArenaBytes: arena})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d.(*Device)
}

func floats(v float32) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)), 256)
}

// value is the float at an offset.
func value(t *testing.T, d *Device, at int) float32 {
	t.Helper()
	b := make([]byte, 4)
	if err := d.Get(b, at); err != nil {
		t.Fatal(err)
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

func prepared(t *testing.T, d *Device, status int, list ...abi.Launch) device.Work {
	t.Helper()
	for i := range list {
		list[i].Grid, list[i].Block = [3]int{1, 1, 1}, [3]int{256, 1, 1}
	}
	w, err := d.Prepare(&device.Task{Launches: list, Status: status})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestConforms: the driver's stand-in does what every device does.
func TestConforms(t *testing.T) { devicetest.Run(t, opened(t, devicetest.Arena)) }

func TestArenaAndLaunches(t *testing.T) {
	d := opened(t, 8192)
	if i := d.Info(); i.Image != "host" || !strings.Contains(i.Name, "stand-in") || i.Arch != "sm_90" || i.Driver != "CUDA 13.0" || i.Library != "nccl" {
		t.Errorf("the device is %+v", i)
	}
	if v := value(t, d, 8188); v != 0 {
		t.Errorf("the arena begins with %v", v)
	}
	must(t, d.Put(0, floats(1)), d.Put(1024, floats(2)), d.Put(4096, binary.LittleEndian.AppendUint64(nil, math.MaxInt64)))
	w := prepared(t, d, 4096, abi.Launch{Kernel: kAdd, Args: []int{0, 1024, 2048}}, abi.Launch{Kernel: kTwice, Args: []int{2048}},
		abi.Launch{Kernel: kRefuse, Args: []int{abi.ArgStatus}}, abi.Launch{Kernel: kAll, Args: []int{abi.ArgBase, abi.ArgTable}, Table: []uint64{2, 1024, 2048}})
	must(t, d.main.Run(w), d.main.CopyRows(5120, 128, 2048, 256, 64, 4))
	b := make([]byte, 8)
	must(t, d.Get(b, 4096))
	if c, row := value(t, d, 2048+1020), binary.LittleEndian.Uint64(b); c != 7 || value(t, d, 1024) != 3 || row != 5 {
		t.Errorf("c is %v, not 7, b is %v, the refused row is %d", c, value(t, d, 1024), row)
	}
	if v := [3]float32{value(t, d, 5120), value(t, d, 5120+64), value(t, d, 5120+128)}; v != [3]float32{7, 0, 7} {
		t.Errorf("copied rows: %v", v)
	}
	for _, wrong := range []abi.Launch{{Kernel: 9}, {Kernel: kAdd, Args: []int{0, 0, 9000}}, {Kernel: kTwice, Args: []int{abi.ArgStatus}}, {Kernel: kTwice, Args: []int{abi.ArgTable}}} {
		if _, err := d.Prepare(&device.Task{Launches: []abi.Launch{wrong}, Status: -1}); err == nil || !strings.HasPrefix(err.Error(), "BUG") {
			t.Errorf("%+v is prepared: %v", wrong, err)
		}
	}
	if err := d.Put(8190, b); err == nil {
		t.Error("a copy leaves the arena")
	}
	if err := d.allow(&launch{kernel: d.kernels[kAdd], shared: 1 << 20}, "add"); err == nil || !strings.Contains(err.Error(), "kernel add needs 1048576 bytes of shared memory") {
		t.Error(err)
	}
	must(t, d.allow(&launch{kernel: d.kernels[kAdd], shared: 100 << 10}, "add"))
}

// A graph of two streams, joined by events, runs as often as it is launched; who waits for an event that it publishes waits for
// the last launch.
func TestGraphs(t *testing.T) {
	d := opened(t, 8192)
	must(t, d.Put(0, floats(1)))
	side, err := d.NewStream(true)
	must(t, err)
	other, err := d.NewStream(false)
	must(t, err)
	var events [3]device.Event
	for i := range events {
		events[i], err = d.NewEvent()
		must(t, err)
	}
	if done, err := d.Done(events[0]); !done || err != nil {
		t.Error("an event that was never recorded is not over")
	}
	twice, sum := prepared(t, d, -1, abi.Launch{Kernel: kTwice, Args: []int{0}}), prepared(t, d, -1, abi.Launch{Kernel: kAdd, Args: []int{0, 1024, 1024}})
	must(t, d.main.Capture(), d.main.Run(twice), d.main.Record(events[0]), side.Wait(events[0]), side.Run(sum), side.Record(events[1]),
		d.main.Publish(events[2]), d.main.Wait(events[1]))
	g, err := d.main.End()
	must(t, err)
	pinned, err := d.Pinned(1024)
	must(t, err)
	for range 3 {
		must(t, d.main.Launch(g), other.Wait(events[2]), other.Download(pinned, 0))
	}
	must(t, other.Sync())
	if v := math.Float32frombits(binary.LittleEndian.Uint32(pinned)); v != 8 {
		t.Errorf("after three launches the number is %v, not 8", v)
	}
	if v := value(t, d, 1024); v != 2+4+8 {
		t.Errorf("the sum is %v, not 14", v)
	}
	if n := testing.AllocsPerRun(20, func() { must(t, d.main.Run(sum), d.main.Record(events[0]), side.Wait(events[0]), d.main.Launch(g)) }); n != 0 {
		t.Errorf("a launch allocates %v times", n)
	}
	d.Drop(g)
	// What is left unjoined makes no graph, and the stream goes on.
	must(t, d.main.Capture(), d.main.Record(events[0]), side.Wait(events[0]), side.Run(sum))
	if _, err := d.main.End(); err == nil {
		t.Error("a graph with loose ends")
	}
	must(t, d.main.Run(twice), d.main.Sync())
}

// BenchmarkLaunch is what a launch costs here; the stand-in is no measure of a GPU's.
func BenchmarkLaunch(b *testing.B) {
	os.Setenv(driver.Variable, driverFile(b))
	image, err := standin.Image(context.Background(), text, standin.Options{})
	if err != nil {
		b.Fatal(err)
	}
	runtime.LockOSThread()
	d, err := Open(&device.Code{Kernels: names, Images: []device.Image{{Arch: "host", Data: image}}}, device.Options{ArenaBytes: 4096})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	l := abi.Launch{Kernel: kTwice, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: []int{0}}
	w, err := d.Prepare(&device.Task{Launches: []abi.Launch{l}, Status: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := d.Main().Run(w); err != nil {
			b.Fatal(err)
		}
		if i%256 == 0 {
			d.Main().Sync()
		}
	}
}

func TestImagesForDevices(t *testing.T) {
	list := func(archs ...string) []device.Image {
		var l []device.Image
		for _, a := range archs {
			l = append(l, device.Image{Arch: a})
		}
		return l
	}
	all := list("sm_80", "sm_86", "sm_90", "compute_80", "compute_90", "source", "host")
	for _, c := range []struct {
		images []device.Image
		arch   string
		want   string
	}{
		{all, "sm_80", "sm_80"}, {all, "sm_90", "sm_90"}, {all, "sm_89", "sm_86"}, {all, "sm_87", "sm_86"}, {all, "sm_100", "compute_90"}, {all, "sm_120", "compute_90"},
		{all, "sm_75", "source"}, {list("sm_90", "sm_90a"), "sm_90", "sm_90a"}, {list("sm_90a", "compute_80"), "sm_100", "compute_80"}, {list("sm_90a"), "sm_100", ""},
		{list("compute_80", "compute_90"), "sm_86", "compute_80"}, {list("sm_90", "compute_90"), "sm_80", ""}, {list("host"), "sm_90", ""},
	} {
		got := ""
		if i := best(c.images, c.arch, false); i != nil {
			got = i.Arch
		}
		if got != c.want {
			t.Errorf("%s gets %q, not %q", c.arch, got, c.want)
		}
	}
	if i := best(all, "sm_90", true); i == nil || i.Arch != "host" {
		t.Error("the stand-in takes another image")
	}
	if i := best(list("sm_90", "source"), "sm_90", true); i != nil {
		t.Error("the stand-in takes an image of a GPU")
	}
}

// Source is compiled once for all starts, and what is wrong with it is told.
func TestSource(t *testing.T) {
	fixtures.NVRTC(t)
	t.Setenv("GTC_CACHE", t.TempDir())
	const source = `extern "C" __global__ void one(float* x) { x[threadIdx.x] = 1; }`
	var said []string
	log := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for range 2 {
		cubin, err := compile([]byte(source), "sm_90", log)
		if err != nil || !bytes.HasPrefix(cubin, []byte("\x7fELF")) {
			t.Fatalf("%d bytes, %v", len(cubin), err)
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "the kernels were compiled for sm_90 in ") {
		t.Errorf("said %q", said)
	}
	if _, err := compile([]byte("no C++"), "sm_90", log); err == nil || !strings.Contains(err.Error(), "kernels.cu(1): error") {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	opened(t, 8192)
	code := kernels(t)
	_, err := Open(&device.Code{Kernels: names, Images: code.Images[:1]}, device.Options{})
	if want := "the program has kernels for sm_90 only, but device 0 (gtc stand-in 0) is sm_90: compile with --arch"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
	newer := *code
	newer.Driver = 99010
	_, err = Open(&newer, device.Options{})
	if want := "the NVIDIA driver is too old: it supports CUDA 13.0, this program needs 99.1 or newer"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
	_, err = Open(code, device.Options{ArenaBytes: 40 << 30})
	if want := "out of device memory: the plan needs 40.0 GiB, device 0 (gtc stand-in 0) has 16.0 GiB, of which"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Error(err)
	}
	missing := *code
	missing.Kernels = append([]string{"nobody"}, names...)
	if _, err = Open(&missing, device.Options{}); err == nil || !strings.Contains(err.Error(), "finding kernel nobody: cuModuleGetFunction: named symbol not found") {
		t.Error(err)
	}
}

// child names the test process that opens a driver of its own kind.
const child = "GTC_TEST_CHILD"

// TestChild is that process.
func TestChild(t *testing.T) {
	switch os.Getenv(child) {
	case "":
		t.Skip("it is part of TestDrivers")
	case "fault": // after which everything fails, with what happened
		d := opened(t, 8192)
		err := d.main.Run(prepared(t, d, -1, abi.Launch{Kernel: kBeyond, Args: []int{0}}))
		if err == nil {
			err = d.main.Sync()
		}
		fmt.Printf("error: %v\n", err)
		var f device.Failure
		if err := d.Put(0, floats(1)); !errors.As(err, &f) || !f.Lost() {
			t.Errorf("a copy to a lost device: %v", err)
		}
	default:
		runtime.LockOSThread()
		_, err := Open(&device.Code{}, device.Options{ArenaBytes: 1 << 20})
		fmt.Printf("error: %v\n", err)
	}
}

// A process without a driver, devices or memory is told so, and one whose kernel fails.
func TestDrivers(t *testing.T) {
	path := driverFile(t)
	broken := filepath.Join(t.TempDir(), "libcuda.so.1")
	must(t, os.WriteFile(broken, []byte("not a library"), 0o666))
	for want, env := range map[string][]string{
		"no NVIDIA driver: libcuda.so.1 cannot be loaded: ":                                                   {driver.Variable + "=" + broken},
		"the NVIDIA driver does not start: cuInit: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)": {driver.Variable + "=" + path, "CUDA_VISIBLE_DEVICES="},
		"out of device memory: the plan needs 1.0 MiB, device 0 (gtc stand-in 0) has 512.0 KiB, of which 512.0 KiB are free": {driver.Variable + "=" + path,
			"GTC_STANDIN_MEMORY=524288"},
		"device 0 (gtc stand-in 0) is lost to this process, running kernels: cuStreamSynchronize: a kernel read or wrote outside of its memory (CUDA_ERROR_ILLEGAL_ADDRESS)": {child + "=fault"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
		cmd.Env = append(append(os.Environ(), child+"=1"), env...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "error: "+want) {
			t.Errorf("%v, want %q in\n%s", err, want, out)
		}
	}
}
