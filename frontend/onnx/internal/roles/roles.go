// Package roles decides which initializers are trained, kept or constant, from how nodes use them, what they hold and what
// exporters recorded, and finds the parameters behind what exporters computed of them.
package roles

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
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

	// Data reads the initial contents.
	Data func() ([]byte, error) `json:"-"`
	// Statistic says that batch normalization updates this buffer.
	Statistic bool `json:"-"`
	// Absent says that it has no contents, see Options.Abstract.
	Absent bool `json:"-"`
	// Value is the parameter in the function being imported, Used whether anything reads it there.
	Value *ir.Value `json:"-"`
	Used  bool      `json:"-"`
}

// layout says how a file tensor lies to the parameter it holds.
type layout uint8

const (
	direct     layout = iota
	transposed        // a matrix stored as its transpose
	flat              // dims of size 1 were added
	repeated          // leading dims were expanded or added
)

// Source is where an operand's value comes from: parameters, brought into the form that the node reads.
type Source struct{ Form *Form }

// Param is the parameter that s reads, the first when there are several.
func (s *Source) Param() *Parameter { return s.Form.Leaves()[0] }

// Constant reports whether s reads nothing but constants.
func (s *Source) Constant() bool {
	return !slices.ContainsFunc(s.Form.Leaves(), func(p *Parameter) bool { return p.Role != RoleConstant })
}

// Roles is the outcome of deciding what each initializer is.
type Roles struct {
	m        *model.File
	Uses     map[string][]model.Operand // of each initializer
	inner    map[string][]model.Operand // what the bodies of loops do with it when it is scanned or carried, by initializer
	ByUse    map[model.Operand]*Source  // operands with a source of their own
	ByName   map[string]*Source         // by initializer, for all other operands
	Params   []*Parameter               // in file order, restored ones last
	Named    map[string]*Parameter
	makers   map[string]*model.Node     // of values; made when first asked for
	readers  map[string][]model.Operand // of all values; made when first asked for
	modules  map[string][]*model.Tensor // tensors with names of their own by their module, in file order; made when first asked for
	leftover []string                   // PyTorch parameters that no node of the file mentions
}

// trainable reports whether weights of type d can be updated: those of 8 bits and fewer are stored results of quantisation.
func trainable(d dtype.DType) bool { return d.IsFloat() && !d.IsSmallFloat() }

// Decide finds parameters, buffers and constants. It reads tensor contents only where names cannot tell.
func Decide(m *model.File) (r *Roles, err error) {
	defer ir.Recover(&err) // an attribute of the wrong type
	r = &Roles{m: m, Uses: map[string][]model.Operand{}, inner: map[string][]model.Operand{}, ByUse: map[model.Operand]*Source{}, ByName: map[string]*Source{},
		Named: map[string]*Parameter{}}
	if err := r.findUses(); err != nil {
		return nil, err
	}
	if m.Record != nil {
		r.fromRecord(m.Record)
		return r.finished()
	}
	r.findLeftover()
	for _, t := range m.InitList {
		if t.Bad == nil && trainable(t.Type.DType) {
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
	if m.Marks != nil {
		r.applyMarks(m.Marks)
	} else if m.TorchScript() {
		r.tellScoped()
	}
	return r.finished()
}

// assign decides about the initializers that no record names, and ties copies.
func (r *Roles) assign() error {
	m := r.m
	var auto, rows []*model.Tensor // tensors that exporters named: trained ones, and all
	for _, t := range r.ordered() {
		if r.ByName[t.Name] != nil {
			continue // another operand's record named it: all its readers share that parameter
		}
		rest := r.Unbound(t)
		if len(rest) == 0 && len(r.Uses[t.Name]) > 0 && !slices.Contains(m.OutputNames, t.Name) {
			continue
		}
		if done, err := r.byOrigin(t); err != nil || done {
			if err != nil {
				return err
			}
			continue
		}
		role, reason, err := r.classify(t, slices.Concat(rest, r.inner[t.Name]))
		if err != nil {
			return err
		}
		if role == RoleParameter && m.Sparse[t.Name] {
			role, reason = RoleConstant, "stored sparsely: --train trains it, with its zeros"
		}
		lay := direct
		if role == RoleParameter && AutoNamed(m, t.Name) && batchRepeats(m, t) {
			lay, reason = repeated, reason+"; stored once, the exporter had expanded it along the batch"
		}
		p := r.add(t, t.Name, lay, role, reason)
		r.ByName[t.Name] = &Source{leafOf(p).as(lay, t.Type.Dims)}
		if AutoNamed(m, t.Name) {
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
func (r *Roles) finished() (*Roles, error) {
	if err := r.userGlobs(); err != nil {
		return nil, err
	}
	r.keepAbsent()
	if err := r.hintTies(); err != nil {
		return nil, err
	}
	bound := r.bound()
	r.Params = slices.DeleteFunc(r.Params, func(p *Parameter) bool { return !bound[p] })
	return r, nil
}

// ordered lists the float initializers in file order, those that were folded from a single parameter last: what they are
// is told beside that one.
func (r *Roles) ordered() []*model.Tensor {
	var first, last []*model.Tensor
	for _, t := range r.m.InitList {
		if t.Bad != nil || !trainable(t.Type.DType) {
			continue
		}
		if params, _ := r.m.Torch.Origins(t.Name); len(params) == 1 {
			last = append(last, t)
		} else {
			first = append(first, t)
		}
	}
	return append(first, last...)
}

// findUses lists the operands that read each initializer.
func (r *Roles) findUses() error {
	alias := map[string]string{} // initializers under the names that bodies of loops give them
	return r.m.EachNode(func(n *model.Node) {
		for i, name := range n.In {
			if r.m.Inits[name] != nil {
				r.Uses[name] = append(r.Uses[name], model.Operand{Node: n, Index: i})
			} else if of := alias[name]; of != "" {
				r.inner[of] = append(r.inner[of], model.Operand{Node: n, Index: i})
			}
		}
		body, _ := r.m.BodyOf(n, "body") // its errors come up where the body is walked
		if body == nil {
			return
		}
		shift := len(n.In) - len(body.In) // the first form of Scan has sequence lengths before what the body reads
		for i, name := range body.In {
			delete(alias, name)
			if k := i + max(shift, 0); k < len(n.In) {
				if of := n.In[k]; r.m.Inits[of] != nil {
					alias[name] = of
				} else if alias[of] != "" {
					alias[name] = alias[of]
				}
			}
		}
	})
}

// bound lists the parameters that some operand still reads: ties and splits leave others that nobody reads.
func (r *Roles) bound() map[*Parameter]bool {
	out := map[*Parameter]bool{}
	mark := func(s *Source) {
		for _, p := range s.Form.Leaves() {
			out[p] = true
		}
	}
	for _, s := range r.ByName {
		mark(s)
	}
	for _, s := range r.ByUse {
		mark(s)
	}
	return out
}

// Unbound lists the operands that read t and have no source of their own.
func (r *Roles) Unbound(t *model.Tensor) []model.Operand {
	var out []model.Operand
	for _, u := range r.Uses[t.Name] {
		if r.ByUse[u] == nil {
			out = append(out, u)
		}
	}
	return out
}

// add makes a parameter that holds t under another name and layout.
func (r *Roles) add(t *model.Tensor, name string, lay layout, role, reason string) *Parameter {
	p := &Parameter{Name: name, Type: t.Type, Role: role, Reason: reason, Initializer: t.Name, Data: t.Bytes, Absent: t.Absent,
		Statistic: strings.HasPrefix(reason, ofStatistics)}
	switch lay {
	case transposed:
		p.Type.Dims = []int{t.Type.Dims[1], t.Type.Dims[0]}
		p.Transposed = true
		p.Data = func() ([]byte, error) {
			data, err := t.Bytes()
			return transposeBytes(data, t.Type.Dims[0], t.Type.Dims[1], t.Type.DType.Size()), err
		}
	case flat:
		p.Type.Dims = fold.Squeezed(t.Type.Dims)
	case repeated:
		p.Type.Dims = slices.Clone(t.Type.Dims)
		p.Type.Dims[0] = 1
		p.Data = func() ([]byte, error) {
			data, err := t.Bytes()
			return data[:min(len(data), p.Type.Bytes())], err
		}
	}
	p.DType, p.Dims = p.Type.DType.String(), p.Type.Dims
	r.Params = append(r.Params, p)
	r.Named[name] = p
	return p
}

// batchRepeats reports whether a folded tensor is one slice repeated along a leading dim as long as the batch: a
// class token that was expanded. Trained as it is, each sample of the batch would get a token of its own.
func batchRepeats(m *model.File, t *model.Tensor) bool {
	d := t.Type.Dims
	if len(d) < 2 || d[0] < 2 || !slices.ContainsFunc(m.InputInfos, func(in *onnxpb.ValueInfoProto) bool {
		dims := in.Type.GetTensorType().GetShape().GetDim()
		return len(dims) > 0 && dims[0].GetDimValue() == int64(d[0])
	}) || t.Absent {
		return false
	}
	data, err := t.Bytes()
	row := len(data) / d[0]
	return err == nil && row > 0 && bytes.Equal(data[row:], data[:len(data)-row])
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

// String is a short form of the parameter for messages: name, type, role.
func (p *Parameter) String() string { return fmt.Sprintf("%q %s (%s)", p.Name, p.Type, p.Role) }
