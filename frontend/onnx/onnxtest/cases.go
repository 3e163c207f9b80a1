// Package onnxtest reads the ONNX project's backend test data for tests, and compares as the project's own runner does.
package onnxtest

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Case is one case of the test data: a model, and for each of its data sets the inputs and the outputs it must give.
type Case struct {
	Suite, Name string // "node", "test_abs"
	Model       []byte // the ONNX file
	Sets        []Set
}

// Set holds serialized TensorProtos by the number of the graph's input or output; an optional or a sequence is one of
// another kind, which nothing here tells apart.
type Set struct{ In, Out map[int][]byte }

// Read unpacks the cases whose name keep accepts from a backend-test-data.tar.gz, sorted by name.
func Read(file string, keep func(name string) bool) ([]*Case, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	cases := map[string]*Case{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		parts := strings.Split(h.Name, "/") // root, suite, case, and below it
		if len(parts) < 4 || h.Typeflag != tar.TypeReg || !keep(parts[2]) {
			continue
		}
		c := cases[parts[2]]
		if c == nil {
			c = &Case{Suite: parts[1], Name: parts[2]}
			cases[parts[2]] = c
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		c.add(parts[3], path.Base(h.Name), data)
	}
	return slices.SortedFunc(maps.Values(cases), func(a, b *Case) int { return strings.Compare(a.Name, b.Name) }), nil
}

// add takes in the file base, which lies in folder dir of the case unless dir is the file itself.
func (c *Case) add(dir, base string, data []byte) {
	if base == "model.onnx" {
		c.Model = data
		return
	}
	var set, i int
	if n, _ := fmt.Sscanf(dir, "test_data_set_%d", &set); n != 1 || set > 100 {
		return
	}
	for len(c.Sets) <= set {
		c.Sets = append(c.Sets, Set{map[int][]byte{}, map[int][]byte{}})
	}
	if n, _ := fmt.Sscanf(base, "input_%d.pb", &i); n == 1 {
		c.Sets[set].In[i] = data
	} else if n, _ := fmt.Sscanf(base, "output_%d.pb", &i); n == 1 {
		c.Sets[set].Out[i] = data
	}
}

// Tolerance is what the project's runner allows: relative to the expected element, and absolute. It allows two units in
// the last place of bfloat16; gtc's tests also do so for float16, whose intermediate results each runtime rounds
// elsewhere.
func Tolerance(d dtype.DType) (rel, abs float64) {
	switch d {
	case dtype.BF16:
		return 1.0 / 64, 1e-7
	case dtype.F16:
		return 1.0 / 512, 1e-7
	}
	return 1e-3, 1e-7
}

// Near returns an error when got has another type than want, or an element outside the tolerance.
func Near(got, want *ir.Array) error {
	if !got.Type.Equal(want.Type) {
		return fmt.Errorf("type %s, want %s", got.Type, want.Type)
	}
	rel, abs := Tolerance(want.Type.DType)
	// The expected sums of float32 are themselves a few roundings off, of the size of their terms rather than their own.
	largest := 0.0
	for _, x := range want.F {
		if a := max(x, -x); a <= maxFinite {
			largest = max(largest, a)
		}
	}
	if want.Type.DType == dtype.F32 {
		abs = max(abs, 2e-6*largest)
	}
	for i, x := range want.F {
		y := got.F[i]
		if y != x && !(max(y-x, x-y) <= abs+rel*max(x, -x)) && !(x != x && y != y) {
			return fmt.Errorf("element %d is %g, want %g", i, y, x)
		}
	}
	for i, x := range want.I {
		if got.I[i] != x {
			return fmt.Errorf("element %d is %d, want %d", i, got.I[i], x)
		}
	}
	return nil
}

const maxFinite = 0x1p1023
