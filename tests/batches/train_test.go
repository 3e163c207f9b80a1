package batches

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// tolerance is of the norm of a difference, relative to that of the right values: programs keep f32, some 1e-7 of each number, through a few steps.
const tolerance = 1e-5

// epochs are as many as in the references.
const epochs = 2

// trained is a row's programs, and what they are trained and compared with.
type trained struct {
	row
	programs    []interp.Program
	crossSample map[string]string // as the run-time gets them
	weighted    bool
	inputs      []string // names of in0, in1, …
	ref         *npz.File
}

// train compiles the row once and trains it with every size of the last batch.
func (r row) train() error {
	path := filepath.Join(scratch, r.model.Name)
	ref, err := npz.Open(path + ".npz")
	if err != nil {
		return err
	}
	defer ref.Close()
	o := &compiler.Options{Model: path + ".onnx", Import: onnx.Options{Batch: r.Batch}, Pass: r.options()}
	m, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return err
	}
	defer m.Close()
	x := &trained{row: r, ref: ref}
	for _, in := range m.Inputs() {
		x.inputs = append(x.inputs, in.Name)
	}
	return compiler.LowerTo(o, "overlap", func(res *compiler.Result) error {
		x.programs, x.crossSample = check.Programs(res.Context), res.Context.CrossSample
		for _, p := range x.programs {
			for _, f := range p.Module.Funcs {
				x.weighted = x.weighted || slices.ContainsFunc(f.Params, func(v *ir.Value) bool {
					return f.Name != "eval" && abi.WholeData.Trim(v.Name) == "sample_weight"
				})
			}
		}
		var errs []error
		for rest := 1; rest <= r.Batch; rest++ {
			if err := x.run(rest); err != nil {
				errs = append(errs, fmt.Errorf("%d of %d samples: %w", rest, r.Batch, err))
			}
		}
		return errors.Join(errs...)
	})
}

// drops reports whether the run-time leaves a batch that is not full out of calls of function.
func (x *trained) drops(function string) bool { return x.crossSample[function] != "" || !x.weighted }

// drops are the models whose last batch is left out: samples meet in them otherwise than in sums.
var drops = []string{"c_shuffled"}

// mayDrop holds whether a last batch is left out to what is known of the model.
func (x *trained) mayDrop(dropped bool) error {
	switch known := slices.Contains(drops, x.model.Name); {
	case dropped && !known:
		return fmt.Errorf("the batch is left out, though a mask can keep out what fills it up: %s", x.crossSample["step"])
	case !dropped && known:
		return errors.New("the batch is kept now: the model is none of those that drop it")
	}
	return nil
}

// run trains and evaluates with a last batch of rest samples.
func (x *trained) run(rest int) error {
	dropped := x.drops("step") && rest < x.Batch
	if rest < x.Batch {
		if err := x.mayDrop(dropped); err != nil {
			return err
		}
	}
	sim, err := interp.Simulate(x.programs, nil)
	if err != nil {
		return err
	}
	where := x.reference(rest, dropped)
	var losses []float64
	for range epochs {
		for first := 0; first < x.Batch+rest && !(dropped && first > 0); first += x.Batch {
			d, err := x.batch("step", first, min(x.Batch, x.Batch+rest-first))
			if err != nil {
				return err
			}
			if err := sim.Step(d); err != nil {
				return err
			}
			sums, err := sumsOf(sim, false)
			if err != nil {
				return err
			}
			losses = append(losses, sums[0]/sums[1])
		}
	}
	errs := []error{x.compare(where+"/losses", losses)}
	kept := map[string]*ir.Array{}
	for _, name := range sim.Names() {
		if kept[name], err = x.whole(sim, name); err != nil {
			return err
		}
	}
	for _, name := range x.ref.Names() {
		if w, ok := strings.CutPrefix(name, where+"/w/"); ok && !(x.inTurn() && strings.Contains(w, "running_")) {
			if a := kept[w]; a == nil {
				errs = append(errs, fmt.Errorf("no rank keeps %q", w))
			} else {
				errs = append(errs, x.compare(name, a.F))
			}
		}
	}
	return errors.Join(append(errs, x.evaluate(where, rest, kept))...)
}

// inTurn reports whether micro-batches move running statistics one after another, of which there are no references; tests/faults has some.
func (r row) inTurn() bool { return r.Ranks && r.micro > 1 && !r.sync }

// whole puts what ranks keep together. Of running statistics that each rank keeps of its own, those of the first along dp are
// saved and evaluated with.
func (x *trained) whole(sim *interp.Simulation, name string) (*ir.Array, error) {
	if x.Ranks && !x.sync && strings.Contains(name, "running_") {
		return sim.Kept(0, name), nil
	}
	return sim.Whole(name)
}

// evaluate holds the loss of @eval over all samples, and the share that is right, to the reference's.
func (x *trained) evaluate(where string, rest int, kept map[string]*ir.Array) error {
	if x.pp > 1 || x.inTurn() {
		return nil // stages hand on what the interpreter calls one function for
	}
	dropped := x.drops("eval") && rest < x.Batch
	if dropped && !x.drops("step") {
		return fmt.Errorf("evaluations leave it out and steps do not: %s", x.crossSample["eval"])
	}
	sim, err := interp.Simulate(x.programs, kept)
	if err != nil {
		return err
	}
	var total [3]float64
	for first := 0; first < x.Batch+rest && !(dropped && first > 0); first += x.Batch {
		d, err := x.batch("eval", first, min(x.Batch, x.Batch+rest-first))
		if err != nil {
			return err
		}
		if err := sim.Call("eval", d); err != nil {
			return err
		}
		sums, err := sumsOf(sim, true)
		if err != nil {
			return err
		}
		for i := range total {
			total[i] += sums[i]
		}
	}
	if x.Total && rest < x.Batch && !dropped {
		return nil
	}
	got := []float64{total[0] / total[1]}
	if x.Loss == "cross_entropy" || x.Loss == "nll" {
		got = append(got, total[2]/total[1])
	}
	want, err := x.array(where + "/eval")
	if err != nil {
		return err
	}
	if strings.HasSuffix(where, "drop") {
		n := rest
		if dropped {
			n = 0
		}
		want = want[n*len(got) : (n+1)*len(got)]
	}
	return near("eval", got, want)
}

// sumsOf are the sum of losses of the last step or call, what it counts, 1 where it does not tell, and how many are right.
func sumsOf(sim *interp.Simulation, add bool) (sums [3]float64, err error) {
	sums[1] = 1
	for i, name := range []string{"loss_sum", "count", "correct"} {
		a, err := sim.Result(name, add)
		switch {
		case err != nil:
			return sums, err
		case a != nil && len(a.I) > 0:
			sums[i] = float64(a.I[0])
		case a != nil:
			sums[i] = a.F[0]
		case i == 0:
			return sums, errors.New("no rank gives the loss")
		}
	}
	return sums, nil
}

// batch is what function takes of n samples from first on: filled up with its own, as the run-time does, of weight 0.
func (x *trained) batch(function string, first, n int) (map[string]*ir.Array, error) {
	out := map[string]*ir.Array{}
	for _, p := range x.programs {
		for _, f := range p.Module.Funcs {
			for _, v := range f.Params {
				name := abi.WholeData.Trim(v.Name)
				if !v.Role.FromData() || out[name] != nil {
					continue
				}
				a := ir.NewArray(ir.T(v.Type.DType, interp.WholeDims(p.Module.Mesh, v)...))
				if err := x.fill(a, name, first, n); err != nil {
					return nil, fmt.Errorf("@%s: %w", function, err)
				}
				out[name] = a
			}
		}
	}
	return out, nil
}

// fill writes the rows of a batch.
func (x *trained) fill(a *ir.Array, name string, first, n int) error {
	if name == "sample_weight" {
		for i := range n {
			a.F[i] = 1
		}
		return nil
	}
	if i := slices.Index(x.inputs, name); i >= 0 {
		name = "in" + strconv.Itoa(i)
	}
	all, err := x.array(name)
	if err != nil {
		return err
	}
	each := len(all) / (2 * x.Batch)
	var rows []float64
	for i := range x.Batch {
		k := first + i%n
		rows = append(rows, all[k*each:(k+1)*each]...)
	}
	if len(rows) != a.Type.Elems() {
		return fmt.Errorf("%q is %s, of the data there are %d elements", name, a.Type, len(rows))
	}
	if a.F != nil {
		copy(a.F, rows)
	}
	for i := range a.I {
		a.I[i] = int64(rows[i])
	}
	return nil
}

// array is one of the reference.
func (x *trained) array(name string) ([]float64, error) {
	a, err := x.ref.Read(name)
	if err != nil {
		return nil, err
	}
	b, err := data.Convert(a.Data, a.DType, "f64")
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(b)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out, nil
}

func (x *trained) compare(name string, got []float64) error {
	want, err := x.array(name)
	if err != nil {
		return err
	}
	return near(name, got, want)
}

// near compares in norm; values of which the right ones are nearly all zero, absolutely.
func near(what string, got, want []float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	var off, size float64
	for i := range want {
		off, size = off+(got[i]-want[i])*(got[i]-want[i]), size+want[i]*want[i]
	}
	if off, size = math.Sqrt(off), math.Sqrt(size); !(off <= tolerance*max(size, 0.1)) {
		return fmt.Errorf("%s: off by %.2g of %.2g: %.6g, want %.6g", what, off, size, got, want)
	}
	return nil
}
