package onnx

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// readBackend unpacks the cases of the ONNX project's test data whose folder name keep accepts.
func readBackend(t *testing.T, keep func(string) bool) []*onnxtest.Case {
	cases, err := onnxtest.Read(fixtures.Path(t, "onnx/backend-test-data.tar.gz"), keep)
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// fixAll fixes every input that the case has data for.
func (m *Model) fixAll(c *onnxtest.Case) {
	m.Options.Fixed = map[string]*ir.Tensor{}
	m.Options.Contents = map[string]*Contents{}
	for i, in := range m.InputInfos {
		v, err := ReadContents(c.Sets[0].In[i], in.Type)
		switch {
		case err != nil:
		case in.Type.GetTensorType() == nil:
			m.Options.Contents[in.GetName()] = v
		default:
			m.Options.Fixed[in.GetName()] = v.Elements[0]
		}
	}
}

var (
	errNotRun = errors.New("not run")
	errWrong  = errors.New("wrong")
)

// runCase imports the case with some inputs fixed when compiling, and interprets it.
func runCase(c *onnxtest.Case, fix func(t ir.Type) bool) error {
	m, err := Parse(c.Model, "", Options{Name: c.Name, Fixed: map[string]*ir.Tensor{}, Contents: map[string]*Contents{}})
	if err != nil {
		return err
	}
	args, err := bindCase(c, m, fix)
	if err != nil {
		return fmt.Errorf("%w: %v", errNotRun, err)
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
	var want []*ir.Tensor // sequences flattened, as results are
	for i, o := range m.Proto.Graph.Output {
		v, err := ReadContents(c.Sets[0].Out[i], o.Type)
		if err != nil {
			return fmt.Errorf("%w: %v", errNotRun, err)
		}
		want = append(want, v.Elements...)
	}
	if len(want) != len(out.All) {
		return fmt.Errorf("%w: %d results, want %d", errWrong, len(out.All), len(want))
	}
	for i, got := range out.All {
		// NumPy's random numbers are others than gtc's: only the types of results can agree.
		if strings.HasPrefix(c.Name, "test_bernoulli") && got.Type.Equal(want[i].Type) {
			continue
		}
		if err := onnxtest.Near(got, want[i].Array()); err != nil {
			return fmt.Errorf("%w: output %d: %v", errWrong, i, err)
		}
	}
	return nil
}

// bindCase gives the model's inputs: as constants where fix says so, else as arguments.
func bindCase(c *onnxtest.Case, m *Model, fix func(t ir.Type) bool) (map[string]*ir.Array, error) {
	args := map[string]*ir.Array{}
	for i, in := range m.InputInfos {
		name := in.GetName()
		v, err := ReadContents(c.Sets[0].In[i], in.Type)
		if err != nil {
			return nil, err
		}
		if in.Type.GetTensorType() == nil {
			m.Options.Contents[name] = v
			v.Known = len(v.Elements) == 0 || fix(v.Elements[0].Type)
			for k, t := range v.Elements {
				args[v.Port(name, k)] = t.Array()
			}
			continue
		}
		t := v.Elements[0]
		if fix(t.Type) {
			m.Options.Fixed[name] = t
			continue
		}
		args[name] = t.Array()
		for k, d := range in.Type.GetTensorType().GetShape().GetDim() {
			if open := model.OpenName(name, k, d); open != "" && k < len(t.Type.Dims) {
				if m.Options.Dims == nil {
					m.Options.Dims = map[string]int{}
				}
				m.Options.Dims[open] = t.Type.Dims[k]
			}
		}
	}
	return args, nil
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
		if why == nil {
			continue // wrong in all modes
		}
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
