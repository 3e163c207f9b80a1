package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
	"github.com/gtc-compiler/gtc/target/launch"
)

// kernels are two that need nothing, and one of a header.
func kernels() []launch.Function {
	return []launch.Function{
		{Name: "twice", Family: "pointwise", Loc: `"/0/Mul" model.py:3`, Text: "extern \"C\" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }\n"},
		{Name: "widen", Family: "pointwise", Text: "extern \"C\" __global__ void widen(const gtc::bf16 *x, float *y) { y[threadIdx.x] = gtc::to_float(x[threadIdx.x]); }\n"},
		{Name: "total", Family: "reduction", Text: "extern \"C\" __global__ void total(float *x)\n{\n\tfloat y = gtc::warp_sum(x[threadIdx.x]);\n\tif (threadIdx.x == 0) x[0] = y;\n}\n"},
	}
}

func builder(t *testing.T, o launch.Options) *Builder {
	t.Helper()
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if b.compiler == nil {
		t.Skip("kernels are NOT COMPILED for a GPU: NVRTC and nvcc are absent (pip install nvidia-cuda-nvrtc, and set VIRTUAL_ENV or CUDA_HOME): " + b.warning)
	}
	return b
}

func TestBuild(t *testing.T) {
	cache := t.TempDir()
	b := builder(t, launch.Options{Cache: cache})
	first, err := b.Build(context.Background(), kernels(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, im := range b.Images() {
		units, err := abi.UnpackUnits(first.Files[im.File])
		if err != nil || len(units) != 3 {
			t.Fatalf("%s: %d units, %v", im.File, len(units), err)
		}
		for i, u := range units {
			if !slices.Equal(u.Kernels, []int{i}) || !bytes.Contains(u.Data, []byte(kernels()[i].Name)) {
				t.Errorf("unit %d of %s has kernels %v", i, im.Arch, u.Kernels)
			}
		}
	}
	if len(first.Figures) != 6 || first.Cached != 0 {
		t.Errorf("%d figures, %d from the cache", len(first.Figures), first.Cached)
	}
	for _, f := range first.Figures {
		if f.Registers < 4 || f.Spills != 0 || f.Family == "" || !strings.HasPrefix(f.Arch, "sm_") {
			t.Errorf("%+v", f)
		}
	}
	again, err := b.Build(context.Background(), kernels(), false)
	if err != nil || again.Cached != 9 || !slices.Equal(again.Figures, first.Figures) {
		t.Errorf("%v; %d of 9 images from the cache", err, again.Cached)
	}
	for name, data := range first.Files {
		if !bytes.Equal(again.Files[name], data) {
			t.Errorf("%s differs from the cache", name)
		}
	}
	if strict, err := b.Build(context.Background(), kernels(), true); err != nil || strict.Cached != 0 {
		t.Errorf("%v; %d images without contraction came from those with", err, strict.Cached)
	}
}

// Each fault names its kernel, where in the model it comes from, and shows the line.
func TestFaults(t *testing.T) {
	b := builder(t, launch.Options{Chips: []string{"sm_90"}})
	list := kernels()
	list[0].Text = strings.Replace(list[0].Text, "2.0f", "two", 1)
	list[2].Text = strings.Replace(list[2].Text, "if (threadIdx", "if (lane", 1)
	_, err := b.Build(context.Background(), list, false)
	if err == nil {
		t.Fatal("it compiles")
	}
	for _, want := range []string{`BUG: kernel twice of "/0/Mul" model.py:3 does not compile for sm_90`, `identifier "two" is undefined`,
		"BUG: kernel total", "  5 | \tif (lane.x == 0) x[0] = y;"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q:\n%v", want, err)
		}
	}
}

// A compiler that fails on all kernels alike is at fault itself, and is told of once.
func TestCompilerFault(t *testing.T) {
	b := builder(t, launch.Options{Chips: []string{"sm_90"}})
	b.compiler = broken{b.compiler}
	_, err := b.Build(context.Background(), kernels(), false)
	if err == nil || !strings.HasPrefix(err.Error(), "NVRTC") || strings.Contains(err.Error(), "BUG") || strings.Count(err.Error(), "out of order") != 1 {
		t.Errorf("%v", err)
	}
}

// broken is a compiler that compiles nothing.
type broken struct{ compiler }

func (broken) compile(context.Context, unit, string) ([]byte, string, error) {
	return nil, "", errors.New("out of order")
}

// With no compiler, the program has one text that needs no headers; NVRTC takes it as it is.
func TestSource(t *testing.T) {
	b, err := New(launch.Options{Getenv: func(string) string { return "" }, Chips: []string{"sm_80"}})
	if err != nil {
		t.Fatal(err)
	}
	b.compiler = nil // there may be one after all
	if im := b.Images(); len(im) != 1 || im[0].Arch != Source || b.Driver() != 0 {
		t.Errorf("%v", im)
	}
	r, err := b.Build(context.Background(), kernels(), false)
	if err != nil {
		t.Fatal(err)
	}
	text := string(r.Files["kernels.source.cu"])
	if include.MatchString(text) || strings.Count(text, "struct bf16") < 1 {
		t.Errorf("it includes something, or lacks it:\n%.2000s", text)
	}
	l := fixtures.NVRTC(t)
	if _, _, err := l.Compile(nvrtc.Source{Name: "kernels.cu", Text: text}, "sm_80", "--std=c++17"); err != nil {
		t.Error(err)
	}
}

func TestArchs(t *testing.T) {
	for arch, want := range map[string]string{"sm_75": "need sm_80", "volta": "name chips", "compute_90": "name chips", "sm_999": "compiles only for"} {
		_, err := New(launch.Options{Chips: []string{arch}})
		if arch == "sm_999" && err == nil {
			t.Log("nothing compiles here")
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", arch, err)
		}
	}
	if _, err := New(launch.Options{Toolkit: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "neither NVRTC") {
		t.Error(err)
	}
}

// nvcc stands in for the compiler: it checks what it is given and writes where it is told.
const nvcc = `#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.1, V13.1.80"; exit; fi
for a; do case "$a" in *.cu) src=$a;; esac; done
[ -f gtc.cuh ] || { echo "no headers"; exit 1; }
grep -q nonsense "$src" && { echo "$src(2): error: nonsense"; exit 1; }
echo "$1 $2 $src" >image
echo "ptxas info    : Function properties for twice"
echo "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads"
echo "ptxas info    : Used 17 registers, used 1 barriers, 8 bytes cumulative stack size, 64 bytes smem"
`

func TestNVCC(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it is a shell script")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "nvcc"), []byte(nvcc), 0o777); err != nil {
		t.Fatal(err)
	}
	b, err := New(launch.Options{Toolkit: dir, Chips: []string{"sm_90"}})
	if err != nil {
		t.Fatal(err)
	}
	if b.Name() != "nvcc 13.1, V13.1.80" || b.Driver() != 13000 {
		t.Errorf("%s, driver %d", b.Name(), b.Driver())
	}
	list := kernels()[:1]
	r, err := b.Build(context.Background(), list, false)
	if err != nil {
		t.Fatal(err)
	}
	want := abi.KernelFigures{Name: "twice", Family: "pointwise", Arch: "sm_90", Registers: 17, Spills: 16, Stack: 8, Shared: 64}
	if len(r.Figures) != 1 || r.Figures[0] != want {
		t.Errorf("%+v", r.Figures)
	}
	for file, says := range map[string]string{"kernels.sm_90.bin": "-cubin -arch=sm_90 twice.cu\n", "kernels.compute_90.bin": "-ptx -arch=compute_90 twice.cu\n"} {
		if units, err := abi.UnpackUnits(r.Files[file]); err != nil || string(units[0].Data) != says {
			t.Errorf("%s: %v, %v", file, units, err)
		}
	}
	list[0].Text = "nonsense\n"
	if _, err := b.Build(context.Background(), list, false); err == nil || !strings.Contains(err.Error(), "twice.cu(2): error: nonsense\n  2 | nonsense") {
		t.Error(err)
	}
}
