package onnx

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// backendCase is one case of the ONNX project's own test data: a model, inputs and the outputs it must give.
type backendCase struct {
	name    string
	model   []byte
	in, out map[int][]byte // by index, of data set 0
}

// readBackend unpacks the cases whose folder name keep accepts.
func readBackend(t *testing.T, keep func(string) bool) []*backendCase {
	f, err := os.Open(filepath.Join(shared(t), "..", "onnx", "backend-test-data.tar.gz"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("shared/ is absent: no backend test data")
	} else if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]*backendCase{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(h.Name, "/")
		if len(parts) < 4 || h.Typeflag != tar.TypeReg || !keep(parts[2]) {
			continue
		}
		c := cases[parts[2]]
		if c == nil {
			c = &backendCase{name: parts[2], in: map[int][]byte{}, out: map[int][]byte{}}
			cases[parts[2]] = c
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		var i int
		switch base := path.Base(h.Name); {
		case base == "model.onnx":
			c.model = data
		case parts[3] != "test_data_set_0":
		case strings.HasPrefix(base, "input_"):
			fmt.Sscanf(base, "input_%d.pb", &i)
			c.in[i] = data
		case strings.HasPrefix(base, "output_"):
			fmt.Sscanf(base, "output_%d.pb", &i)
			c.out[i] = data
		}
	}
	return slices.SortedFunc(maps.Values(cases), func(a, b *backendCase) int { return strings.Compare(a.name, b.name) })
}

// decode reads a TensorProto file.
func decode(data []byte) (*ir.Tensor, error) {
	p := &onnxpb.TensorProto{}
	if err := p.Unmarshal(data); err != nil {
		return nil, err
	}
	t, err := (&Model{}).newTensor(p)
	if err != nil {
		return nil, err
	}
	return t.ir()
}

// fixAll fixes every input that the case has data for.
func (m *Model) fixAll(c *backendCase) {
	m.opts.Fixed = map[string]*ir.Tensor{}
	for i, in := range m.inputs {
		if t, err := decode(c.in[i]); err == nil {
			m.opts.Fixed[in.GetName()] = t
		}
	}
}

var (
	errNotRun = errors.New("not run")
	errWrong  = errors.New("wrong")
)

// run imports the case with some inputs fixed when compiling, and interprets it.
func (c *backendCase) run(fix func(t ir.Type) bool) error {
	m, err := Parse(c.model, "", Options{Name: c.name, Fixed: map[string]*ir.Tensor{}})
	if err != nil {
		return err
	}
	args := map[string]*ir.Array{}
	for i, in := range m.inputs {
		t, err := decode(c.in[i])
		if err != nil {
			return fmt.Errorf("%w: %v", errNotRun, err)
		}
		if fix(t.Type) {
			m.opts.Fixed[in.GetName()] = t
			continue
		}
		args[in.GetName()] = t.Array()
		for k, d := range in.Type.GetTensorType().GetShape().GetDim() {
			if d.GetDimParam() != "" && k < len(t.Type.Dims) {
				if m.opts.Dims == nil {
					m.opts.Dims = map[string]int{}
				}
				m.opts.Dims[d.GetDimParam()] = t.Type.Dims[k]
			}
		}
	}
	mod, err := m.Import()
	if err != nil {
		return err
	}
	if err := mod.Verify(); err != nil {
		return fmt.Errorf("%w: %v", errWrong, err)
	}
	out, err := interp.Run(mod.Funcs[0], args)
	if err != nil {
		return fmt.Errorf("%w: %v", errWrong, err)
	}
	for i, got := range out.All {
		want, err := decode(c.out[i])
		if err != nil {
			return fmt.Errorf("%w: %v", errNotRun, err)
		}
		if err := near(got, want.Array()); err != nil {
			return fmt.Errorf("%w: output %d: %v", errWrong, i, err)
		}
	}
	return nil
}

// near compares with the tolerance of the ONNX backend tests, and that of half precision for it.
func near(got, want *ir.Array) error {
	if !got.Type.Equal(want.Type) {
		return fmt.Errorf("type %s, want %s", got.Type, want.Type)
	}
	rel, abs := 1e-3, 1e-5
	if d := want.Type.DType; d == dtype.F16 || d == dtype.BF16 {
		rel, abs = 1e-2, 1e-2
	}
	for i, x := range want.F {
		if y := got.F[i]; y != x && !(math.Abs(y-x) <= abs+rel*math.Abs(x)) && !(math.IsNaN(x) && math.IsNaN(y)) {
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

// TestBackend runs the ONNX project's cases: with all inputs given at run time, with integer and bool inputs known when
// compiling, and with everything known (host evaluation). A case may be refused, it may not give another result.
func TestBackend(t *testing.T) {
	modes := []struct {
		name string
		fix  func(ir.Type) bool
	}{
		{"run time", func(ir.Type) bool { return false }},
		{"integers known", func(t ir.Type) bool { return !t.DType.IsFloat() }},
		{"all known", func(ir.Type) bool { return true }},
	}
	ok, refused := 0, 0
	var reasons []string
	keep := func(name string) bool { return !strings.Contains(name, "dropout") } // always active here, as in training
	for _, c := range readBackend(t, keep) {
		passed := false
		var why error
		for _, mode := range modes {
			err := c.run(mode.fix)
			switch {
			case err == nil:
				passed = true
			case errors.Is(err, errWrong):
				t.Errorf("%s, %s: %v", c.name, mode.name, err)
			default:
				why = err
			}
		}
		if passed {
			ok++
			continue
		}
		refused++
		reasons = append(reasons, c.name+": "+strings.ReplaceAll(why.Error(), "\n", " "))
	}
	t.Logf("%d cases pass, %d are refused with an error", ok, refused)
	if ok < 1150 {
		t.Errorf("only %d cases pass", ok)
	}
	if os.Getenv("GTC_TEST_REFUSED") != "" {
		t.Log("refused:\n" + strings.Join(reasons, "\n"))
	}
}
