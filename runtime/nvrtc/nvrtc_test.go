package nvrtc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func library(t *testing.T) *Library {
	t.Helper()
	l, err := Open(Candidates("", os.Getenv))
	if err != nil {
		t.Skipf("NVRTC is absent (pip install nvidia-cuda-nvrtc and set VIRTUAL_ENV or CUDA_HOME): %v", err)
	}
	return l
}

const scale = `#include "factor.cuh"
extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= FACTOR; }
`

func TestCompile(t *testing.T) {
	l := library(t)
	s := Source{Name: "scale.cu", Text: scale, Headers: []Header{{"factor.cuh", "#define FACTOR 3.0f\n"}}}
	cubin, log, err := l.Compile(s, "sm_90", "--ptxas-options=-v")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(cubin, []byte("\x7fELF")) || !bytes.Contains(cubin, []byte("scale")) {
		t.Errorf("%d bytes are no cubin with the kernel", len(cubin))
	}
	if !strings.Contains(log, "registers") {
		t.Errorf("the log does not tell the registers:\n%s", log)
	}
	ptx, _, err := l.Compile(s, "compute_80")
	if err != nil || !strings.Contains(string(ptx), ".visible .entry scale") {
		t.Errorf("%v, PTX of %d bytes", err, len(ptx))
	}
	archs, err := l.Archs()
	if err != nil || len(archs) == 0 {
		t.Error(archs, err)
	}
}

func TestFaultsNameTheLine(t *testing.T) {
	l := library(t)
	_, _, err := l.Compile(Source{Name: "scale.cu", Text: "\n" + strings.Replace(scale, "FACTOR", "missing", 1),
		Headers: []Header{{"factor.cuh", ""}}}, "sm_80")
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Log, `scale.cu(3): error: identifier "missing" is undefined`) {
		t.Error(err)
	}
}

func TestManyAtOnce(t *testing.T) {
	l := library(t)
	want, _, err := l.Compile(Source{Name: "a.cu", Text: strings.Replace(scale, `#include "factor.cuh"`, "#define FACTOR 2.f", 1)}, "sm_80")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			got, _, err := l.Compile(Source{Name: "a.cu", Text: strings.Replace(scale, `#include "factor.cuh"`, "#define FACTOR 2.f", 1)}, "sm_80")
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v, %d bytes, alone %d", err, len(got), len(want))
			}
		})
	}
	wg.Wait()
}

// Candidates finds the library in each layout, and what is named before what is usual.
func TestCandidates(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for _, path := range []string{"home/lib64/libnvrtc.so.12", "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13"} {
		path = filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{path, filepath.Join(filepath.Dir(path), "libnvrtc.so"), filepath.Join(filepath.Dir(path), "libnvrtc.alt.so.13")} {
			if err := os.WriteFile(name, nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want = append(want, path)
	}
	env := map[string]string{"CUDA_HOME": filepath.Join(dir, "home"), "VIRTUAL_ENV": filepath.Join(dir, "venv")}
	got := Candidates("", func(name string) string { return env[name] })
	if len(got) < 5 || got[0] != want[0] || got[2] != want[1] || got[len(got)-1] != "libnvrtc.so" {
		t.Errorf("%q", got)
	}
	for _, path := range []string{"venv", "venv/lib/python3.11/site-packages", "venv/lib/python3.11/site-packages/nvidia/cu13", "venv/lib/python3.11/site-packages/nvidia/cu13/lib"} {
		if got := Candidates(filepath.Join(dir, filepath.FromSlash(path)), os.Getenv); len(got) != 2 || got[0] != want[1] {
			t.Errorf("--cuda-path %s: %q", path, got)
		}
	}
	t.Chdir(dir)
	if got := Candidates("venv", os.Getenv); len(got) != 2 || got[0] != want[1] {
		t.Errorf("--cuda-path venv, a relative path: %q", got)
	}
	if got := Candidates(dir, os.Getenv); len(got) != 0 {
		t.Errorf("%q in a folder without it", got)
	}
	if _, err := Open([]string{want[0]}); err == nil || !strings.Contains(err.Error(), want[0]) {
		t.Errorf("%v for an empty file", err)
	}
}
