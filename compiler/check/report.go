package check

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Report is the outcome. The JSON field names are public.
type Report struct {
	OK        bool               `json:"ok"`
	Out       float64            `json:"out"`       // ‖out-ref‖/‖ref‖, the worst of the outputs
	Loss      float64            `json:"loss"`      // |loss-ref|/|ref|
	GradMax   float64            `json:"grad_max"`  // the worst gradient
	Unmatched []string           `json:"unmatched"` // reference gradients of no parameter of that name
	Curves    map[string]float64 `json:"curves"`    // by optimizer: ‖curve-ref‖/‖ref‖
	Seconds   float64            `json:"seconds"`
	Simulated bool               `json:"simulated,omitempty"` // interpreted: no kernel has run

	Warnings []string `json:"warnings,omitempty"` // of the import

	Compiled *pass.Context `json:"-"` // of the first curve: layouts, schedules, remarks; contents of tensors are gone

	Tol float64 `json:"-"`

	Infers    bool   `json:"-"` // compiled with --loss none: outputs alone are compared
	Precision string `json:"-"` // "" for fp32
	Steps     int    `json:"-"` // updates of each curve that were compared; 0 is all
	Grads     []Grad `json:"-"` // worst first
	Rows      []Row  `json:"-"` // what was compared, in order: outputs, loss, curves
}

// Grad is one compared gradient.
type Grad struct {
	Name  string
	Error float64
	Norm  float64 // of the reference
}

// Row is one other comparison.
type Row struct {
	Name  string
	Error float64
}

// tiny is the norm of a gradient, beside the largest of all, below which it is compared absolutely: what remains of
// a gradient that is zero in exact arithmetic (the bias before a normalisation) is rounding.
const tiny = 1e-6

// never is the error of what is not a number, otherSize that of what cannot be compared: both are beyond any tolerance.
const (
	never     = math.MaxFloat64
	otherSize = math.MaxFloat64 / 2 // of arrays of other sizes
)

// Figures are the errors in one line, for logs: of outputs, loss, the worst gradient and the worst curve.
func (r *Report) Figures() string {
	curve := 0.0
	for _, e := range r.Curves {
		curve = max(curve, e)
	}
	return fmt.Sprintf("out %.1e, loss %.1e, gradients %.1e, curves %.1e", r.Out, r.Loss, r.GradMax, curve)
}

// results are what a run gave, by name.
type results interface {
	// array gives a whole array as float64, and its shape.
	array(name string) ([]float64, []int, error)
}

// stored are the results of a run that wrote them into a file.
type stored struct{ *npz.File }

func (s stored) array(name string) ([]float64, []int, error) { return read(s.File, name) }

// inferred are the outputs of a program that only infers, in their order, under the names of the model.
type inferred struct{ *npz.File }

func (f inferred) array(name string) ([]float64, []int, error) {
	for i, n := range f.Names() {
		if name == abi.OutputPrefix+strconv.Itoa(i) {
			return read(f.File, n)
		}
	}
	return nil, nil, fmt.Errorf("%s: the program gives no %q", f.Path(), name)
}

// read gives an array as float64.
func read(f *npz.File, name string) ([]float64, []int, error) {
	a, err := f.Read(name)
	if err != nil {
		return nil, nil, err
	}
	x, err := floats(a)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: array %q: %w", f.Path(), name, err)
	}
	return x, a.Shape, nil
}

func floats(a *npz.Array) ([]float64, error) {
	b, err := data.Convert(a.Data, a.DType, "f64")
	if err != nil {
		return nil, err
	}
	x := make([]float64, len(b)/8)
	for i := range x {
		x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return x, nil
}

func norm(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v * v
	}
	return math.Sqrt(s)
}

// distance is ‖a-b‖, otherSize when they have different lengths, never when one is not finite.
func distance(a, b []float64) float64 {
	if len(a) != len(b) {
		return otherSize
	}
	s := 0.0
	for i := range a {
		d := a[i] - b[i]
		s += d * d
	}
	if math.IsNaN(s) {
		return never
	}
	return math.Sqrt(s)
}

// ratio is d/n, d itself when n is zero, and never more than never, also for a reference that is not finite.
func ratio(d, n float64) float64 {
	if n == 0 || d == otherSize {
		return d
	}
	if math.IsNaN(d/n) || math.IsInf(n, 0) {
		return never
	}
	return min(d/n, never)
}

// compare fills outputs, loss and gradients from the first step's results.
func (r *Report) compare(ref *npz.File, got results, params []*onnx.Parameter) error {
	for i := 0; has(ref, fmt.Sprintf("out%d", i)); i++ {
		name := fmt.Sprintf("out%d", i)
		want, _, err := read(ref, name)
		if err != nil {
			return err
		}
		have, _, err := got.array(name)
		if err != nil {
			return err
		}
		e := ratio(distance(have, want), norm(want))
		r.Out = max(r.Out, e)
		r.Rows = append(r.Rows, Row{name, e})
	}
	if r.Infers {
		r.Unmatched = []string{}
		return nil
	}
	if has(ref, "loss") {
		want, _, err := read(ref, "loss")
		if err != nil {
			return err
		}
		have, _, err := got.array("loss")
		if err != nil {
			return err
		}
		have, want, note := withoutEmpty(got, have[:min(1, len(have))], want)
		r.Loss = ratio(distance(have, want), norm(want))
		r.Rows = append(r.Rows, Row{"loss" + note, r.Loss})
	}
	return r.gradients(ref, got, params)
}

func (r *Report) gradients(ref *npz.File, got results, params []*onnx.Parameter) error {
	r.Unmatched = []string{}
	largest := 0.0
	absolute := []float64{}
	for _, key := range ref.Names() {
		name, ok := abi.Gradient.Cut(key)
		if !ok {
			continue
		}
		want, wantShape, err := read(ref, key)
		if err != nil {
			return err
		}
		have, shape := match(got, name, params)
		if have == nil {
			have = matchRows(got, name, params, want, wantShape)
		}
		if have == nil {
			r.Unmatched = append(r.Unmatched, name)
			continue
		}
		if len(shape) == 2 && len(wantShape) == 2 && shape[0] == wantShape[1] && shape[1] == wantShape[0] && shape[0] != shape[1] {
			have = transpose(have, shape[0], shape[1])
		}
		n := norm(want)
		largest = max(largest, n)
		absolute = append(absolute, distance(have, want))
		r.Grads = append(r.Grads, Grad{Name: name, Norm: n})
	}
	for i := range r.Grads {
		g := &r.Grads[i]
		if g.Norm < tiny*largest {
			g.Error = ratio(absolute[i], largest)
		} else {
			g.Error = ratio(absolute[i], g.Norm)
		}
		r.GradMax = max(r.GradMax, g.Error)
	}
	slices.SortStableFunc(r.Grads, func(a, b Grad) int {
		switch {
		case a.Error > b.Error:
			return -1
		case a.Error < b.Error:
			return 1
		}
		return 0
	})
	return nil
}

// match finds the gradient of the parameter that the reference calls name: by that name, by another name of the same
// tensor, or by the file's tensor that holds it, turned back when the exporter had transposed it.
func match(got results, name string, params []*onnx.Parameter) ([]float64, []int) {
	if x, shape, err := got.array(abi.Gradient.Of(name)); err == nil {
		return x, shape
	}
	for _, p := range params {
		if p.Initializer != name && !slices.Contains(p.Aliases, name) {
			continue
		}
		x, shape, err := got.array(abi.Gradient.Of(p.Name))
		if err != nil {
			continue
		}
		if p.Initializer == name && p.Transposed && len(shape) == 2 {
			return transpose(x, shape[0], shape[1]), []int{shape[1], shape[0]}
		}
		return x, shape
	}
	return nil, nil
}

func transpose(x []float64, rows, cols int) []float64 {
	out := make([]float64, len(x))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = x[i*cols+j]
		}
	}
	return out
}

// emptySteps is the array of results with a 1 for each step in which nothing counts for the loss: it has none.
const emptySteps = abi.EmptySteps

// withoutEmpty makes the losses of empty steps 0 where the reference has 0 or NaN, so that they agree, and says how many there
// are.
func withoutEmpty(got results, have, want []float64) (h, w []float64, note string) {
	empty, _, err := got.array(emptySteps)
	if err != nil {
		return have, want, ""
	}
	h, w = slices.Clone(have), slices.Clone(want)
	n := 0
	for i := range min(len(h), len(w), len(empty)) {
		if empty[i] == 0 {
			continue
		}
		if n++; w[i] == 0 || math.IsNaN(w[i]) {
			h[i], w[i] = 0, 0
		}
	}
	if n > 0 {
		note = fmt.Sprintf(" (nothing counts in %d of %d steps)", n, len(h))
	}
	return h, w, note
}

// curve compares the losses before each update, all together.
func (r *Report) curve(ref *npz.File, got results, name string) error {
	if !has(ref, abi.Curve.Of(name)) {
		return nil
	}
	want, _, err := read(ref, abi.Curve.Of(name))
	if err != nil {
		return err
	}
	have, _, err := got.array("loss")
	if err != nil {
		return err
	}
	if r.Steps > 0 {
		want = want[:min(len(want), r.Steps)]
	}
	have, want, note := withoutEmpty(got, have, want)
	e := ratio(distance(have, want), norm(want))
	r.Curves[name] = e
	r.Rows = append(r.Rows, Row{abi.Curve.Of(name) + note, e})
	return nil
}

// finish decides.
func (r *Report) finish() {
	r.OK = r.Out <= r.Tol && r.Loss <= r.Tol && r.GradMax <= r.Tol && len(r.Rows)+len(r.Grads) > 0
	for _, e := range r.Curves {
		r.OK = r.OK && e <= r.Tol
	}
}

// numeric reports whether an error is one, and not never or otherSize.
func numeric(e float64) bool { return e < otherSize }

// figure prints an error.
func figure(e float64) string {
	switch {
	case e == otherSize:
		return "other size"
	case !numeric(e):
		return "NaN"
	}
	return fmt.Sprintf("%.2e", e)
}

// title heads the list of gradients, and says that it is not all of them.
func (r *Report) title(all bool) string {
	if all || len(r.Grads) <= worst {
		return fmt.Sprintf("gradients (%d)", len(r.Grads))
	}
	return fmt.Sprintf("gradients (%d), worst %d", len(r.Grads), worst)
}

// worst is how many gradients are printed unless more are out of tolerance.
const worst = 3

// Print writes the table; all gradients when all is set, else the worst three.
func (r *Report) Print(w io.Writer, all bool) {
	mark := func(e float64) string {
		if e <= r.Tol {
			return "ok"
		}
		return "FAIL"
	}
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%-40s %10s  %s\n", printable.Line(row.Name), figure(row.Error), mark(row.Error))
	}
	if !r.Infers {
		fmt.Fprintf(w, "%-40s %10s  %s\n", r.title(all), figure(r.GradMax), mark(r.GradMax))
	}
	for i, g := range r.Grads {
		if i >= worst && !all && g.Error <= r.Tol {
			break
		}
		fmt.Fprintf(w, "  %-38s %10s  %s\n", printable.Line(g.Name), figure(g.Error), mark(g.Error))
	}
	for _, u := range r.Unmatched {
		fmt.Fprintf(w, "  %-38s  unmatched: no parameter of this name\n", u)
	}
	verdict := "all within tolerance"
	if !r.OK {
		verdict = "NOT within tolerance"
	}
	how := ""
	if r.Precision != "" {
		how = ", " + r.Precision
	}
	if r.Simulated {
		how += ", simulated: no kernel has run"
	}
	fmt.Fprintf(w, "%s %.0e, %.1f s%s\n", verdict, r.Tol, r.Seconds, how)
}
