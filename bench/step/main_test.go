package main

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMedianAndSpread(t *testing.T) {
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("median of an even list: %v, want 2.5", got)
	}
	if got := spread([]float64{0.003, 0.001, 0.002}, 1e3); got != "min 1.00  median 2.00  max 3.00" {
		t.Error(got)
	}
}

func TestReadRowsPassesOverOtherLines(t *testing.T) {
	out := "warming up\n{\"note\":\"plan\"}\n{\"step\":1,\"loss\":4.2,\"seconds\":0.5}\n\n{\"step\":2,\"loss\":4.1,\"seconds\":0.25}\n"
	got, err := readRows(bufio.NewReader(strings.NewReader(out)), 2)
	if err != nil || len(got) != 2 || got[0] != 0.5 || got[1] != 0.25 {
		t.Errorf("got %v %v", got, err)
	}
	if _, err := readRows(bufio.NewReader(strings.NewReader(out)), 3); err == nil {
		t.Error("a program that stops early: no error")
	}
}

func TestEnvironmentGivesBothSidesTheSameThreads(t *testing.T) {
	t.Setenv("OPENBLAS_NUM_THREADS", "1")
	t.Setenv("OMP_NUM_THREADS", "7")
	got := strings.Join(environment(2), " ")
	if strings.Contains(got, "OPENBLAS_") || strings.Contains(got, "=7") || !strings.Contains(got, "OMP_NUM_THREADS=2") {
		t.Error(got)
	}
}

// TestReady: a clone has the text of the GPT, not its tokens.
func TestReady(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for name, ex := range examples {
		if ex.prepare != nil { // not into the checkout
			dir := t.TempDir()
			ex.data, ex.prepare = filepath.Join(dir, filepath.Base(ex.data)), append(slices.Clone(ex.prepare), "-out", dir)
		}
		if err := ex.ready(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(ex.data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
