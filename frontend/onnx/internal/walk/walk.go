// Package walk visits the nodes of a model in order: what is known is folded, any other node becomes core ops by its row in
// the table of operators. Rules of operators see a Walker, which has the builder, the values made so far and subgraphs to call.
package walk

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Val is a value of the graph during the walk: known on the host, computed by the program, or a sequence. An optional
// that holds something is what it holds.
type Val struct {
	Type  ir.Type
	Array *ir.Array     // contents, when known on the host
	Init  *model.Tensor // an initializer that is a constant, decoded when its contents are asked for
	Value *ir.Value     // in the program; made from arr when a node that is not folded needs it
	Image *ir.Value     // the numbers of a quantised value as floats that carry gradients; nil for none
	Seq   []*Val        // elements, of a sequence

	shrunk *ir.Tensor        // arr without its repetitions; nil before it is wanted
	consts map[int]*ir.Value // it in the program, by number of dims

	IsSeq bool
	None  bool // an optional that holds nothing
}

// Walker carries one import: it visits live nodes in order, folds what is known and emits the rest.
type Walker struct {
	File   *model.File
	Roles  *roles.Roles
	B      *ir.Builder
	Env    map[string]*Val
	Outer  *Walker       // of the graph that encloses this subgraph; nil for the main graph
	Gate   *Gate         // of a subgraph that counts only under a condition; nil for others
	spent  *model.Budget // by the whole import
	Depth  int
	views  map[string]*ir.Value   // parameters as nodes read them, by form
	padded map[int]bool           // values of --padding-idx that have found their table
	fixed  map[string]*Val        // parameters that are constants, by form
	absent map[string]string      // results that rules do not make, and of which node
	inner  map[*model.Tensor]*Val // initializers of subgraphs
	steps  *int                   // nodes of subgraphs walked so far
	Nodes  []*model.Node          // of this graph, in order
	Read   map[string]bool        // names that some node or output of the main graph reads; nil until somebody asks

	Outputs []string // of the main graph, for each result of the program

	Counter  *ir.Value // the step, for dropout; nil until the first one
	Dropouts int
}

// NewWalker begins the import of m as func @forward.
func NewWalker(m *model.File, r *roles.Roles) *Walker {
	return &Walker{File: m, Roles: r, B: ir.NewBuilder(&ir.Func{Name: abi.FuncForward}), Env: map[string]*Val{}, spent: &model.Budget{}, views: map[string]*ir.Value{},
		fixed: map[string]*Val{}, padded: map[int]bool{}, absent: map[string]string{}, inner: map[*model.Tensor]*Val{}, steps: new(int)}
}

// Finish drops what no result needs, makes dropouts of those that are spelled out, and warns of inputs that nothing reads.
func (w *Walker) Finish() {
	w.B.F.DCE()
	w.settleNoise()
	w.dropUnused()
	w.tellUnread()
}

// Run declares inputs and parameters, visits the nodes and records the results.
func (w *Walker) Run(live []*model.Node, dims map[string]int) (err error) {
	defer func() { // a fault of ours must not take a server down with it, whatever the file holds
		if r := recover(); r != nil {
			err = fmt.Errorf("BUG: at node %s (%s): %v\n%s", w.B.Loc, w.B.Loc.OpType, r, debug.Stack())
		}
	}()
	defer ir.Recover(&err)
	if err := w.declareInputs(dims); err != nil {
		return err
	}
	if err := w.declareParams(); err != nil {
		return err
	}
	w.Nodes = live
	for _, n := range live {
		w.Visit(n)
	}
	for _, name := range w.File.OutputNames {
		w.B.Loc = ir.Loc{Node: name, OpType: "output"}
		if x := w.Lookup(name); x != nil {
			if err := asDeclared(w.File, name, x); err != nil {
				return err
			}
			w.result(name, x)
			continue
		}
		maker := w.absent[name]
		return fmt.Errorf("output %q is a result of node %q that gtc does not compute", name, maker)
	}
	return w.checkPadding()
}

// result makes x a result of the program, or, when it is a sequence, each of its elements.
func (w *Walker) result(name string, x *Val) {
	switch {
	case x.None:
	case x.IsSeq:
		for _, e := range x.Seq {
			w.result(name, e)
		}
	default:
		w.B.Result(fmt.Sprintf("out%d", len(w.Outputs)), w.Value(x))
		w.Outputs = append(w.Outputs, name)
	}
}

func (w *Walker) declareInputs(dims map[string]int) error {
	for _, in := range w.File.InputInfos {
		if c := w.File.Options.Fixed[in.GetName()]; c != nil {
			w.Env[in.GetName()] = &Val{Type: c.Type, Array: c.Array()}
			continue
		}
		if c := w.File.Options.Contents[in.GetName()]; c != nil {
			w.Env[in.GetName()] = w.contents(in.GetName(), c)
			continue
		}
		t, err := w.File.InputType(in, dims)
		if err != nil {
			return err
		}
		v := w.B.Param(in.GetName(), t, ir.Input)
		w.Env[in.GetName()] = &Val{Type: t, Value: v}
	}
	return nil
}

// declareParams makes a function parameter of each parameter and buffer, with its initial contents.
func (w *Walker) declareParams() error {
	for _, p := range w.Roles.Params {
		if p.Role == roles.RoleConstant {
			continue
		}
		var data []byte
		if !p.Absent {
			var err error
			if data, err = p.Data(); err != nil {
				return err
			}
		}
		role := ir.Param
		if p.Role == roles.RoleBuffer {
			role = ir.Buffer
		}
		p.Value = w.B.Param(p.Name, p.Type, role)
		if own := p.Value.Name; own != p.Name { // checkpoints, exports and reports know it by the name that the program has for it
			w.File.Warn("parameter %q is called %q, because an input has its name", p.Name, own)
			p.Aliases = append(slices.Clone(p.Aliases), p.Name)
			p.Name, w.Roles.Named[own] = own, p
		}
		p.Value.Init = &ir.Tensor{Type: p.Type, Data: data}
	}
	return nil
}

// dropUnused removes parameters that no op reads (inputs stay: the data is keyed by them).
func (w *Walker) dropUnused() {
	f := w.B.F
	uses := f.Uses()
	result, kept := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	for _, r := range f.Results {
		result[r.Value], result[r.Updates] = true, true
	}
	f.Params = slices.DeleteFunc(f.Params, func(p *ir.Value) bool {
		return p.Role != ir.Input && len(uses[p]) == 0 && !result[p]
	})
	for i, p := range f.Params {
		p.Index, kept[p] = i, true
	}
	for _, p := range w.Roles.Params {
		p.Used = p.Value != nil && kept[p.Value]
	}
}

// tellUnread warns of inputs that nothing reads: data for them has no effect, and an exporter that took two for one, such as
// labels=input_ids, leaves one of them so.
func (w *Walker) tellUnread() {
	uses, result := w.B.F.Uses(), map[*ir.Value]bool{}
	for _, r := range w.B.F.Results {
		result[r.Value] = true
	}
	for _, p := range w.B.F.Params {
		if p.Role == ir.Input && len(uses[p]) == 0 && !result[p] {
			w.File.Warn("nothing reads input %q: what is given for it has no effect. Was the model exported with one tensor for two of its inputs (labels=input_ids)? Give each a tensor of its own", p.Name)
		}
	}
}

// Lookup finds a value by name in this graph or those around it; nil when there is none.
func (w *Walker) Lookup(name string) *Val {
	if x := w.Env[name]; x != nil {
		return x
	}
	if w.Outer != nil {
		x := w.Outer.Lookup(name)
		if x != nil && w.Gate != nil {
			x = w.gated(x)
		}
		return x
	}
	t := w.File.Inits[name]
	if t == nil {
		return nil
	}
	if t.Bad != nil {
		panic(ir.Errorf(w.B.Loc, "%v", t.Bad))
	}
	if s := w.Roles.ByName[name]; s != nil && !s.Constant() {
		return w.sourceVal(s)
	}
	return w.constant(name, t)
}

// constant is an initializer that is not trained, the same value whenever it is read.
func (w *Walker) constant(name string, t *model.Tensor) *Val {
	root := w
	for root.Outer != nil {
		root = root.Outer
	}
	x := root.Env[name]
	if x == nil {
		x = &Val{Type: t.Type, Init: t}
		root.Env[name] = x
	}
	return x
}

// sourceVal is what a source gives, built once. Constants stay known on the host.
func (w *Walker) sourceVal(s *roles.Source) *Val {
	p := s.Param()
	if s.Constant() {
		key := s.Form.String()
		if w.fixed[key] == nil {
			data, err := s.Form.Bytes((*roles.Parameter).Contents)
			if err != nil {
				panic(ir.Errorf(w.B.Loc, "%v", err))
			}
			w.fixed[key] = &Val{Type: s.Form.Type, Init: &model.Tensor{Name: p.Name, Type: s.Form.Type, Data: data}}
		}
		return w.fixed[key]
	}
	if s.Form.Op == roles.Leaf {
		return &Val{Type: p.Type, Value: p.Value}
	}
	key := s.Form.String()
	if made := w.views[key]; made != nil {
		return &Val{Type: made.Type, Value: made}
	}
	v := emit(s.Form, w)
	if v != p.Value {
		v = w.B.Rename(v, p.Name+s.Form.Suffix())
	}
	w.views[key] = v
	return &Val{Type: v.Type, Value: v}
}

// inputsOf gathers a node's operands; nil for those left out.
func (w *Walker) inputsOf(n *model.Node) []*Val {
	in := make([]*Val, len(n.In))
	for i, name := range n.In {
		if name == "" {
			continue
		}
		if s := w.Roles.ByUse[model.Operand{Node: n, Index: i}]; s != nil {
			in[i] = w.sourceVal(s)
			for g := w; g != nil; g = g.Outer {
				if g.Gate != nil {
					in[i] = g.gated(in[i])
				}
			}
		} else {
			in[i] = w.Lookup(name)
		}
		if in[i] == nil {
			if maker := w.absent[name]; maker != "" {
				n.Fail("input %d is %q, a result of node %q that gtc does not compute", i, name, maker)
			}
			n.Fail("input %d is %q, which no node produces", i, name)
		}
	}
	return in
}

// Visit folds or emits one node and binds its results.
func (w *Walker) Visit(n *model.Node) {
	w.B.Loc = n.Loc
	row, why := Lookup(n)
	if row == nil {
		n.Fail("the operator cannot be imported%s", why)
	}
	in := w.aligned(n, w.inputsOf(n))
	if len(in) < row.Min {
		n.Fail("it has %s, but needs at least %d", printable.Count(len(in), "input"), row.Min)
	}
	required := in[:row.Min]
	if row.Max < 0 {
		required = in
	}
	if i := slices.Index(required, nil); i >= 0 {
		n.Fail("input %d is left out, but is required", i)
	}
	if row.Max >= 0 && len(in) > row.Max {
		n.Fail("it has %s, but takes at most %d", printable.Count(len(in), "input"), row.Max)
	}
	n.Spent = w.spent
	if n.Spent.Visits++; n.Spent.Visits > model.MaxVisits {
		n.Fail("the graph comes to more than %d nodes when its loops are unrolled", model.MaxVisits)
	}
	start := len(w.B.F.Ops)
	if start > maxOps {
		n.Fail("the graph comes to more than %d operations", maxOps)
	}
	out := w.fold(n, in)
	if out == nil {
		if row.Rule == nil {
			n.Fail("the shape of its result depends on what its operands hold, which must be known when compiling: %s", w.unknown(n, in))
		}
		w.noSequences(n, row, in)
		out = w.emit(n, row, in)
	}
	for i, name := range n.Out {
		if name == "" {
			continue
		}
		if i >= len(out) || out[i] == nil {
			w.absent[name] = n.Loc.Node
			continue
		}
		w.Env[name] = out[i]
		if v := out[i].Value; v != nil && v.Op != nil && opIndex(w.B.F, v.Op, start) {
			w.B.Rename(v, name)
		}
	}
}

// opIndex reports whether op was emitted at or after start.
func opIndex(f *ir.Func, op *ir.Op, start int) bool { return slices.Contains(f.Ops[start:], op) }

// emit runs the row's rule and gives the location of errors that rise inside op constructors its opset.
func (w *Walker) emit(n *model.Node, row *Row, in []*Val) []*Val {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *ir.Error:
			r.Loc = n.Located()
			panic(r)
		case model.TooLarge:
			panic(r.Err)
		default:
			panic(r)
		}
	}()
	if out := w.move(n, row, in); out != nil {
		return out
	}
	return row.Rule(w, n, in)
}

func (w *Walker) noSequences(n *model.Node, row *Row, in []*Val) {
	for i, x := range in {
		switch {
		case x == nil || row.Seq:
		case x.IsSeq:
			n.Fail("input %d is a sequence", i)
		case x.None:
			n.Fail("input %d is an optional that holds nothing", i)
		}
	}
}

// unknown names the operands whose contents are not known at import.
func (w *Walker) unknown(n *model.Node, in []*Val) string {
	var names []string
	for i, x := range in {
		if x != nil && x.Array == nil && x.Init == nil {
			names = append(names, fmt.Sprintf("%q", n.In[i]))
		}
	}
	return strings.Join(names, ", ") + " depends on the model's inputs or parameters" + w.HintValue(in...)
}

// fold evaluates n on the host when all its operands are known; nil when it cannot.
func (w *Walker) fold(n *model.Node, in []*Val) (out []*Val) {
	f := fold.Funcs[n.Op]
	if f == nil || len(in) == 0 {
		return nil
	}
	arrays := make([]*ir.Array, len(in))
	for i, x := range in {
		if x == nil {
			continue
		}
		if arrays[i] = w.Array(x); arrays[i] == nil {
			return nil
		}
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case model.TooLarge:
			if row, _ := Lookup(n); row == nil || row.Rule == nil {
				panic(r.Err)
			}
			out = nil
		default:
			panic(r)
		}
	}()
	for _, a := range arrays {
		if a != nil {
			n.Work(a.Type.Elems())
		}
	}
	for _, a := range f(n, arrays) {
		out = append(out, &Val{Type: a.Type, Array: a})
	}
	return out
}

// asDeclared refuses an output of another element type than the file declares, and warns of other dims: some tools leave those as
// they were for another batch or before a change.
func asDeclared(m *model.File, name string, x *Val) error {
	i := slices.IndexFunc(m.Proto.Graph.Output, func(o *onnxpb.ValueInfoProto) bool { return o.GetName() == name })
	if i < 0 || x.IsSeq || x.None {
		return nil
	}
	t := m.Proto.Graph.Output[i].GetType().GetTensorType()
	if t == nil || t.GetElemType() == 0 {
		return nil
	}
	if d, err := model.DTypeOf(t.GetElemType()); err != nil || d != x.Type.DType {
		return fmt.Errorf("output %q is declared to hold elements of type %s, but holds %s", name, onnxpb.TensorProto_DataType(t.GetElemType()), x.Type.DType)
	}
	if t.Shape == nil {
		return nil
	}
	differs := len(t.Shape.Dim) != len(x.Type.Dims)
	for k, d := range t.Shape.Dim {
		differs = differs || d.GetDimValue() > 0 && d.GetDimValue() != int64(x.Type.Dims[k])
	}
	if differs {
		m.Warn("output %q is %s, but the file declares other dims", name, x.Type)
	}
	return nil
}
