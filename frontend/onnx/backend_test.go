package onnx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// readBackend unpacks the cases of the ONNX project's test data whose folder name keep accepts.
func readBackend(t *testing.T, keep func(string) bool) []*onnxtest.Case {
	cases, err := onnxtest.Read(filepath.Join(shared(t), "..", "onnx", "backend-test-data.tar.gz"), keep)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("shared/ is absent: no backend test data")
	} else if err != nil {
		t.Fatal(err)
	}
	return cases
}

// fixAll fixes every input that the case has data for.
func (m *Model) fixAll(c *onnxtest.Case) {
	m.opts.Fixed = map[string]*ir.Tensor{}
	for i, in := range m.inputs {
		if t, err := ReadTensor(c.Sets[0].In[i]); err == nil {
			m.opts.Fixed[in.GetName()] = t
		}
	}
}

var (
	errNotRun = errors.New("not run")
	errWrong  = errors.New("wrong")
)

// runCase imports the case with some inputs fixed when compiling, and interprets it.
func runCase(c *onnxtest.Case, fix func(t ir.Type) bool) error {
	m, err := Parse(c.Model, "", Options{Name: c.Name, Fixed: map[string]*ir.Tensor{}})
	if err != nil {
		return err
	}
	args := map[string]*ir.Array{}
	for i, in := range m.inputs {
		t, err := ReadTensor(c.Sets[0].In[i])
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
		want, err := ReadTensor(c.Sets[0].Out[i])
		if err != nil {
			return fmt.Errorf("%w: %v", errNotRun, err)
		}
		if err := onnxtest.Near(got, want.Array()); err != nil {
			return fmt.Errorf("%w: output %d: %v", errWrong, i, err)
		}
	}
	return nil
}

// TestBackend runs the ONNX project's cases through the interpreter (tests/onnx also runs their kernels): with all inputs given at run time, with integer and bool inputs known when
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
			err := runCase(c, mode.fix)
			switch {
			case err == nil:
				passed = true
			case errors.Is(err, errWrong):
				t.Errorf("%s, %s: %v", c.Name, mode.name, err)
			default:
				why = err
			}
		}
		if passed {
			ok++
			continue
		}
		refused++
		reasons = append(reasons, c.Name+": "+strings.ReplaceAll(why.Error(), "\n", " "))
	}
	t.Logf("%d cases pass, %d are refused with an error", ok, refused)
	if ok < 1150 {
		t.Errorf("only %d cases pass", ok)
	}
	if os.Getenv("GTC_TEST_REFUSED") != "" {
		t.Log("refused:\n" + strings.Join(reasons, "\n"))
	}
}
