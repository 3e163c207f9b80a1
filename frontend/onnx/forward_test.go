package onnx

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var (
	descrRE = regexp.MustCompile(`'descr': '<(\w\d)'`)
	shapeRE = regexp.MustCompile(`'shape': \(([^)]*)\)`)
)

// readNpy reads the one kind of array that the reference files hold: little-endian, row-major.
func readNpy(data []byte) (*ir.Array, error) {
	size := int(binary.LittleEndian.Uint16(data[8:]))
	header, body := string(data[10:10+size]), data[10+size:]
	d := descrRE.FindStringSubmatch(header)
	if d == nil {
		return nil, fmt.Errorf("header %q", header)
	}
	t := ir.Type{DType: map[string]dtype.DType{"f4": dtype.F32, "f8": dtype.F64, "i8": dtype.I64}[d[1]]}
	for _, s := range strings.Split(shapeRE.FindStringSubmatch(header)[1], ",") {
		var n int
		if _, err := fmt.Sscan(s, &n); err == nil {
			t.Dims = append(t.Dims, n)
		}
	}
	return (&ir.Tensor{Type: t, Data: body}).Array(), nil
}

// readNpz reads the arrays of a reference whose names keep accepts.
func readNpz(t testing.TB, path string, keep func(string) bool) map[string]*ir.Array {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out := map[string]*ir.Array{}
	for _, f := range z.File {
		name := strings.TrimSuffix(f.Name, ".npy")
		if !keep(name) {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := io.Copy(&b, r); err != nil {
			t.Fatal(err)
		}
		if out[name], err = readNpy(b.Bytes()); err != nil {
			t.Fatal(name, err)
		}
	}
	return out
}

// trainBatchNorm makes the batch normalizations of f use the statistics of the batch, as the references did.
func trainBatchNorm(f *ir.Func) {
	for _, op := range f.Ops {
		if op.Def != ops.BatchNormStatDef {
			continue
		}
		op.Attrs = ops.BatchNormAttrs{Eps: op.Attrs.(ops.BatchNormStatAttrs).Eps}
		op.Def, op.In = ops.BatchNormDef, op.In[:3]
		for i, name := range []string{"mean", "var"} {
			op.Out = append(op.Out, &ir.Value{Name: op.Out[0].Name + "." + name, Type: op.In[1].Type, Op: op, Index: i + 1,
				Offset: ir.NoOffset})
		}
	}
}

// TestSharedForward runs the imported models in the interpreter against PyTorch's outputs.
func TestSharedForward(t *testing.T) {
	dir := fixtures.Path(t, "models")
	files, _ := filepath.Glob(filepath.Join(dir, "*.onnx"))
	for _, file := range files {
		base := filepath.Base(file)
		name, _, _ := strings.Cut(base, ".")
		switch {
		case name == "convnet_bn" && strings.Contains(base, ".opt"):
			continue // batch norms folded away: its outputs are those of inference
		case name == "timm_test_resnet", name == "timm_test_vit" && testing.Short():
			continue // slow in the interpreter; gtc check covers them
		}
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			m, err := Load(file, Options{Batch: batchOf(file)})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			mod, err := m.Import()
			if err != nil {
				t.Fatal(err)
			}
			f := mod.Funcs[0]
			trainBatchNorm(f)
			ref := readNpz(t, filepath.Join(dir, name+".npz"), func(n string) bool {
				return strings.HasPrefix(n, "in") || n == "out0"
			})
			want := ref["out0"]
			delete(ref, "out0")
			out, err := interp.Run(f, ref)
			if err != nil {
				t.Fatal(err)
			}
			got := out.Named["out0"]
			if got == nil || got.Type.Elems() != want.Type.Elems() {
				t.Fatalf("out0 is %v, want %v", got, want.Type)
			}
			diff, norm := 0.0, 0.0
			for i, x := range want.F {
				diff += (got.F[i] - x) * (got.F[i] - x)
				norm += x * x
			}
			if e := math.Sqrt(diff / norm); !(e < 2e-6) {
				t.Errorf("relative error %.3g", e)
			}
		})
	}
}
