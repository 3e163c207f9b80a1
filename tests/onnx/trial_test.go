package onnx

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/codegentest"
	frontend "github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/normalize"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/recognize"
	"github.com/gtc-compiler/gtc/passes/simplify"
	"github.com/gtc-compiler/gtc/passes/trainstep"
)

// reasons are why a case may be unsupported by design.
var reasons = []string{"strings", "image decoding"}

// drawn are cases whose outputs are drawn from numpy's generator: gtc's numbers are others, so only types are compared.
var drawn = map[string]bool{
	"test_bernoulli": true, "test_bernoulli_double": true, "test_bernoulli_seed": true,
	"test_bernoulli_expanded": true, "test_bernoulli_double_expanded": true, "test_bernoulli_seed_expanded": true,
	"test_training_dropout": true, "test_training_dropout_default": true,
	"test_training_dropout_mask": true, "test_training_dropout_default_mask": true,
}

// modes are the forms in which a case is tried, by which inputs are known when compiling.
var modes = []struct {
	name string
	fix  func(ir.Type) bool
}{
	{"all inputs at run time", func(ir.Type) bool { return false }},
	{"integers known", func(t ir.Type) bool { return !t.DType.IsFloat() }},
	{"all inputs known", func(ir.Type) bool { return true }},
}

// trial is one case on its way through.
type trial struct {
	c           *onnxtest.Case
	mode        int // the first form that imports
	sets        []*codegentest.Job
	want        [][]*ir.Tensor // by data set
	interpreted bool           // the interpreter agreed
	folded      bool           // nothing is left to compute
	byType      bool           // only types are compared
	err         error
}

// try runs the case in the interpreter.
func try(c *onnxtest.Case) (tr *trial) {
	tr = &trial{c: c, mode: -1, byType: drawn[c.Name], folded: true}
	defer func() {
		if r := recover(); r != nil {
			tr.err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	first := errors.New("the case has no data")
	for mode := range modes {
		for i := range c.Sets {
			err := tr.form(mode, c.Sets[i])
			var refused *refusal
			if err == nil {
				continue
			}
			err = fmt.Errorf("%s: %w", modes[mode].name, err)
			if mode == 0 {
				first = err
			}
			if !errors.As(err, &refused) || strings.Contains(err.Error(), "BUG") {
				tr.err = err
				return tr
			}
			break
		}
	}
	if tr.mode < 0 {
		tr.err = first
	}
	tr.interpreted = tr.err == nil
	return tr
}

// refusal is an error of the importer, which another form of the case may not meet.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// form imports the case in one form and interprets it on one data set.
func (tr *trial) form(mode int, set onnxtest.Set) error {
	m, args, err := tr.load(modes[mode].fix, set)
	if err != nil {
		return &refusal{err}
	}
	mod, err := m.Import()
	if err != nil {
		return &refusal{err}
	}
	if err := mod.Verify(); err != nil {
		return err
	}
	c := &pass.Context{Module: mod, Opt: &pass.Options{}}
	if err := trainstep.Inference(c, mod.Funcs[0]); err != nil {
		return err
	}
	arrays := map[string]*ir.Array{}
	for name, t := range args {
		arrays[name] = t.Array()
	}
	out, err := interp.Run(mod.Funcs[0], arrays)
	if err != nil {
		return err
	}
	want, err := expected(m, set, len(out.All))
	if err != nil {
		return &refusal{err}
	}
	for i, got := range out.All {
		if err := tr.near(got, want[i]); err != nil {
			return fmt.Errorf("wrong: output %d: %w", i, err)
		}
	}
	if tr.mode < 0 || tr.mode == mode {
		tr.mode = mode
		tr.folded = tr.folded && constant(mod.Funcs[0])
		tr.sets = append(tr.sets, &codegentest.Job{Module: mod, Args: args})
		tr.want = append(tr.want, want)
	}
	return nil
}

// constant reports whether f computes nothing.
func constant(f *ir.Func) bool {
	for _, op := range f.Ops {
		if op.Def != ops.ConstDef {
			return false
		}
	}
	return true
}

// load parses the model with the inputs that fix accepts known; args are the others.
func (tr *trial) load(fix func(ir.Type) bool, set onnxtest.Set) (*frontend.Model, map[string]*ir.Tensor, error) {
	o := frontend.Options{Name: tr.c.Name, Fixed: map[string]*ir.Tensor{}, Dims: map[string]int{},
		Contents: map[string]*frontend.Contents{}}
	m, err := frontend.Parse(tr.c.Model, "", o)
	if err != nil {
		return nil, nil, err
	}
	args := map[string]*ir.Tensor{}
	for i, in := range m.Inputs() {
		v, err := frontend.ReadContents(set.In[i], in.Type)
		if err != nil {
			return nil, nil, fmt.Errorf("input %d: %w", i, err)
		}
		if in.Type.GetTensorType() == nil { // a sequence or an optional: its tensors become inputs
			o.Contents[in.Name] = v
			v.Known = len(v.Elements) == 0 || fix(v.Elements[0].Type)
			for k, t := range v.Elements {
				args[v.Port(in.Name, k)] = t
			}
			continue
		}
		t := v.Elements[0]
		if fix(t.Type) {
			o.Fixed[in.Name] = t
			continue
		}
		args[in.Name] = t
		for k, name := range in.Open {
			if name != "" && k < len(t.Type.Dims) {
				o.Dims[name] = t.Type.Dims[k]
			}
		}
	}
	m, err = frontend.Parse(tr.c.Model, "", o)
	return m, args, err
}

// expected is the n tensors that a data set wants; those of a sequence follow one another.
func expected(m *frontend.Model, set onnxtest.Set, n int) ([]*ir.Tensor, error) {
	var want []*ir.Tensor
	for i, o := range m.Proto.Graph.Output {
		v, err := frontend.ReadContents(set.Out[i], o.Type)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		want = append(want, v.Elements...)
	}
	if len(want) != n {
		return nil, fmt.Errorf("%d tensors, want %d", n, len(want))
	}
	return want, nil
}

// near compares a result with what the data holds.
func (tr *trial) near(got *ir.Array, want *ir.Tensor) error {
	if tr.byType {
		if !got.Type.Equal(want.Type) {
			return fmt.Errorf("type %s, want %s", got.Type, want.Type)
		}
		return nil
	}
	return onnxtest.Near(got, want.Array())
}

// jobs are the kernels to compile, none when everything is known already. The passes that come before fusion in the
// pipeline have run, those of training apart.
func (tr *trial) jobs() []*codegentest.Job {
	if tr.folded {
		return nil
	}
	for _, j := range tr.sets {
		c := &pass.Context{Module: j.Module, Opt: &pass.Options{}}
		for _, run := range []func(*pass.Context) error{normalize.Run, recognize.Run, simplify.Run} {
			if err := attempt(run, c); err != nil {
				tr.err = err
				return nil
			}
		}
	}
	return tr.sets
}

func attempt(run func(*pass.Context) error, c *pass.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return run(c)
}

// check compares what the kernels gave.
func (tr *trial) check() {
	if tr.folded {
		return
	}
	for s, j := range tr.sets {
		if j.Err != nil {
			tr.err = fmt.Errorf("kernels: %w", j.Err)
			return
		}
		for i, got := range j.Out {
			if err := tr.near(got.Array(), tr.want[s][i]); err != nil {
				tr.err = fmt.Errorf("kernels: wrong: output %d: %w", i, err)
				return
			}
		}
	}
}
