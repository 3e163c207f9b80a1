package onnx

import (
	"bytes"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// The roles of an initializer, as printed by gtc inspect.
const (
	RoleParameter = "parameter" // trained
	RoleBuffer    = "buffer"    // kept and updated by the model (running statistics), or frozen by the user
	RoleConstant  = "constant"  // part of the computation: masks, tables, scalars
)

// Parameter is a tensor of the model with the role it plays in training and why.
type Parameter struct {
	// Name is the original parameter name where it is known (a PyTorch name), else the initializer's.
	Name string `json:"name"`
	// Type is the type under that name; it may be the transpose of what the file stores.
	Type ir.Type `json:"-"`
	// DType and Dims repeat Type for JSON.
	DType string `json:"dtype"`
	Dims  []int  `json:"dims"`
	Role  string `json:"role"`
	// Reason says what the role was decided from.
	Reason string `json:"reason"`
	// Initializer is the tensor of the file that holds the initial values; empty when the exporter dropped
	// an all-zero one.
	Initializer string `json:"initializer,omitempty"`
	// Origin is the PyTorch parameter that this one is a part of, when the exporter kept no more than that.
	Origin string `json:"origin,omitempty"`
	// Aliases are the other names under which PyTorch's module holds the same tensor.
	Aliases []string `json:"aliases,omitempty"`
	// Transposed says that the file stores the transpose.
	Transposed bool `json:"transposed,omitempty"`

	// Lookups is how many rows of a table a batch looks up, those that come again counted again; 0 for what is read otherwise. Inspect sets it.
	Lookups int `json:"lookups,omitempty"`

	lora *adapter // of this weight; nil for most
	data func() ([]byte, error)

	statistic bool // a buffer that batch normalization updates

	absent bool      // it has no contents, see Options.Abstract
	value  *ir.Value // in the function being imported
	used   bool
}

// layout says how a file tensor lies to the parameter it holds.
type layout uint8

const (
	direct     layout = iota
	transposed        // a matrix stored as its transpose
	flat              // dims of size 1 were added
	repeated          // leading dims were expanded or added
)

// source is where an operand's value comes from: parameters, brought into the form that the node reads.
type source struct{ form *form }

// param is the parameter that s reads, the first when there are several.
func (s *source) param() *Parameter { return s.form.leaves()[0] }

// constant reports whether s reads nothing but constants.
func (s *source) constant() bool {
	return !slices.ContainsFunc(s.form.leaves(), func(p *Parameter) bool { return p.Role != RoleConstant })
}

// operand is one input of one node.
type operand struct {
	n *node
	i int
}

// roles is the outcome of deciding what each initializer is.
type roles struct {
	m        *Model
	uses     map[string][]operand // of each initializer
	inner    map[string][]operand // what the bodies of loops do with it when it is scanned or carried, by initializer
	byUse    map[operand]*source  // operands with a source of their own
	byName   map[string]*source   // by initializer, for all other operands
	params   []*Parameter         // in file order, restored ones last
	named    map[string]*Parameter
	makers   map[string]*node     // of values; made when first asked for
	readers  map[string][]operand // of all values; made when first asked for
	modules  map[string][]*tensor // tensors with names of their own by their module, in file order; made when first asked for
	leftover []string             // PyTorch parameters that no node of the file mentions
}

// trainable reports whether weights of type d can be updated: those of 8 bits and fewer are stored results of quantisation.
func trainable(d dtype.DType) bool { return d.IsFloat() && !d.IsSmallFloat() }

// decideRoles finds parameters, buffers and constants. It reads tensor contents only where names cannot tell.
func (m *Model) decideRoles() (r *roles, err error) {
	defer ir.Recover(&err) // an attribute of the wrong type
	r = &roles{m: m, uses: map[string][]operand{}, inner: map[string][]operand{}, byUse: map[operand]*source{}, byName: map[string]*source{},
		named: map[string]*Parameter{}}
	if err := r.findUses(); err != nil {
		return nil, err
	}
	if m.record != nil {
		r.fromRecord(m.record)
		return r.finished()
	}
	r.findLeftover()
	for _, t := range m.initList {
		if t.bad == nil && trainable(t.typ.DType) {
			if err := r.recoverNames(t); err != nil {
				return nil, err
			}
		}
	}
	if err := r.recoverRecurrent(); err != nil {
		return nil, err
	}
	if err := r.assign(); err != nil {
		return nil, err
	}
	r.splitConstants()
	if err := r.unmergeByRecord(); err != nil {
		return nil, err
	}
	r.unmergeByNode()
	r.restoreBiases()
	r.warnLost()
	if m.marks != nil {
		r.applyMarks(m.marks)
	} else if m.torchScript() {
		r.tellScoped()
	}
	return r.finished()
}

// assign decides about the initializers that no record names, and ties copies.
func (r *roles) assign() error {
	m := r.m
	var auto, rows []*tensor // tensors that exporters named: trained ones, and all
	for _, t := range r.ordered() {
		if r.byName[t.name] != nil {
			continue // another operand's record named it: all its readers share that parameter
		}
		rest := r.unbound(t)
		if len(rest) == 0 && len(r.uses[t.name]) > 0 && !slices.Contains(m.outputs, t.name) {
			continue
		}
		if done, err := r.byOrigin(t); err != nil || done {
			if err != nil {
				return err
			}
			continue
		}
		role, reason, err := r.classify(t, slices.Concat(rest, r.inner[t.name]))
		if err != nil {
			return err
		}
		if role == RoleParameter && m.sparse[t.name] {
			role, reason = RoleConstant, "stored sparsely: --train trains it, with its zeros"
		}
		lay := direct
		if role == RoleParameter && m.autoNamed(t.name) && m.batchRepeats(t) {
			lay, reason = repeated, reason+"; stored once, the exporter had expanded it along the batch"
		}
		p := r.add(t, t.name, lay, role, reason)
		r.byName[t.name] = &source{leafOf(p).as(lay, t.typ.Dims)}
		if m.autoNamed(t.name) {
			if role == RoleParameter {
				auto = append(auto, t)
			}
			rows = append(rows, t)
		}
	}
	for _, t := range rows {
		if err := r.retieRows(t); err != nil {
			return err
		}
	}
	for _, t := range auto {
		if err := r.retie(t); err != nil {
			return err
		}
	}
	return nil
}

// finished applies the user's wishes and leaves out what nobody reads.
func (r *roles) finished() (*roles, error) {
	if err := r.userGlobs(); err != nil {
		return nil, err
	}
	r.keepAbsent()
	if err := r.hintTies(); err != nil {
		return nil, err
	}
	bound := r.bound()
	r.params = slices.DeleteFunc(r.params, func(p *Parameter) bool { return !bound[p] })
	return r, nil
}

// ordered lists the float initializers in file order, those that were folded from a single parameter last: what they are
// is told beside that one.
func (r *roles) ordered() []*tensor {
	var first, last []*tensor
	for _, t := range r.m.initList {
		if t.bad != nil || !trainable(t.typ.DType) {
			continue
		}
		if params, _ := r.m.torch.origins(t.name); len(params) == 1 {
			last = append(last, t)
		} else {
			first = append(first, t)
		}
	}
	return append(first, last...)
}

// findUses lists the operands that read each initializer.
func (r *roles) findUses() error {
	alias := map[string]string{} // initializers under the names that bodies of loops give them
	return r.m.eachNode(func(n *node) {
		for i, name := range n.in {
			if r.m.inits[name] != nil {
				r.uses[name] = append(r.uses[name], operand{n, i})
			} else if of := alias[name]; of != "" {
				r.inner[of] = append(r.inner[of], operand{n, i})
			}
		}
		body, _ := r.m.bodyOf(n, "body") // its errors come up where the body is walked
		if body == nil {
			return
		}
		shift := len(n.in) - len(body.in) // the first form of Scan has sequence lengths before what the body reads
		for i, name := range body.in {
			delete(alias, name)
			if k := i + max(shift, 0); k < len(n.in) {
				if of := n.in[k]; r.m.inits[of] != nil {
					alias[name] = of
				} else if alias[of] != "" {
					alias[name] = alias[of]
				}
			}
		}
	})
}

// bound lists the parameters that some operand still reads: ties and splits leave others that nobody reads.
func (r *roles) bound() map[*Parameter]bool {
	out := map[*Parameter]bool{}
	mark := func(s *source) {
		for _, p := range s.form.leaves() {
			out[p] = true
		}
	}
	for _, s := range r.byName {
		mark(s)
	}
	for _, s := range r.byUse {
		mark(s)
	}
	return out
}

// unbound lists the operands that read t and have no source of their own.
func (r *roles) unbound(t *tensor) []operand {
	var out []operand
	for _, u := range r.uses[t.name] {
		if r.byUse[u] == nil {
			out = append(out, u)
		}
	}
	return out
}

// add makes a parameter that holds t under another name and layout.
func (r *roles) add(t *tensor, name string, lay layout, role, reason string) *Parameter {
	p := &Parameter{Name: name, Type: t.typ, Role: role, Reason: reason, Initializer: t.name, data: t.bytes, absent: t.absent,
		statistic: strings.HasPrefix(reason, ofStatistics)}
	switch lay {
	case transposed:
		p.Type.Dims = []int{t.typ.Dims[1], t.typ.Dims[0]}
		p.Transposed = true
		p.data = func() ([]byte, error) {
			data, err := t.bytes()
			return transposeBytes(data, t.typ.Dims[0], t.typ.Dims[1], t.typ.DType.Size()), err
		}
	case flat:
		p.Type.Dims = squeezed(t.typ.Dims)
	case repeated:
		p.Type.Dims = slices.Clone(t.typ.Dims)
		p.Type.Dims[0] = 1
		p.data = func() ([]byte, error) {
			data, err := t.bytes()
			return data[:min(len(data), p.Type.Bytes())], err
		}
	}
	p.DType, p.Dims = p.Type.DType.String(), p.Type.Dims
	r.params = append(r.params, p)
	r.named[name] = p
	return p
}

// batchRepeats reports whether a folded tensor is one slice repeated along a leading dim as long as the batch: a
// class token that was expanded. Trained as it is, each sample of the batch would get a token of its own.
func (m *Model) batchRepeats(t *tensor) bool {
	d := t.typ.Dims
	if len(d) < 2 || d[0] < 2 || !slices.ContainsFunc(m.inputs, func(in *onnxpb.ValueInfoProto) bool {
		dims := in.Type.GetTensorType().GetShape().GetDim()
		return len(dims) > 0 && dims[0].GetDimValue() == int64(d[0])
	}) || t.absent {
		return false
	}
	data, err := t.bytes()
	row := len(data) / d[0]
	return err == nil && row > 0 && bytes.Equal(data[row:], data[:len(data)-row])
}

// squeezed drops dims of size 1.
func squeezed(dims []int) []int {
	out := []int{}
	for _, d := range dims {
		if d != 1 {
			out = append(out, d)
		}
	}
	return out
}

// transposeBytes transposes a row-major matrix of elements of size bytes.
func transposeBytes(data []byte, rows, cols, size int) []byte {
	out := make([]byte, len(data))
	if len(data) != rows*cols*size {
		return nil
	}
	for i := range rows {
		for j := range cols {
			copy(out[(j*rows+i)*size:][:size], data[(i*cols+j)*size:][:size])
		}
	}
	return out
}
