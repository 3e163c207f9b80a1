package standin

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestImagesAreTheSame(t *testing.T) {
	if _, err := Compiler(); err != nil {
		t.Skip(err)
	}
	b, err := open()
	if err != nil {
		t.Fatal(err)
	}
	var images [][]byte
	// Another cache, so that it is compiled anew.
	for _, b := range []*builder{b, {compiler: b.compiler, dir: t.TempDir(), headers: b.headers}} {
		image, err := b.image(context.Background(), kernels, Options{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(image)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, data)
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("one text gives two images")
	}
}

func TestTextsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"int x;": "0 __global__ functions",
		"#include \"gtc.cuh\"\nextern \"C\" static __global__ int k() {}":                                        "of which 0 are written",
		"#include \"gtc.cuh\"\nextern \"C\" __global__ void k(int n) {}":                                         "gtc_host_parameters",
		"#include \"gtc.cuh\"\nextern \"C\" __global__ void k(float* x) { __shared__ float s[1]; x[0] = s[0]; }": "__shared__",
	} {
		if _, err := Image(context.Background(), text, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want it to name %s", text, err, want)
		}
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"old": stale + time.Hour, "new": time.Hour} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	prune(dir)
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 1 || filepath.Base(left[0]) != "new" {
		t.Errorf("%v are left", left)
	}
}
