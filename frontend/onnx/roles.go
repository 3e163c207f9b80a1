package onnx

import (
	"bytes"
	"fmt"
	"path"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
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
	// Transposed says that the file stores the transpose.
	Transposed bool `json:"transposed,omitempty"`

	data  func() ([]byte, error)
	value *ir.Value // in the function being imported
	used  bool
}

// layout says how a file tensor lies to the parameter it holds.
type layout uint8

const (
	direct     layout = iota
	transposed        // a matrix stored as its transpose
	flat              // dims of size 1 were added
	repeated          // leading dims were expanded or added
)

// source is where an operand's value comes from: a parameter, brought into the layout that the node reads.
type source struct {
	param  *Parameter
	layout layout
	dims   []int // of the operand
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
	byUse    map[operand]*source  // operands with a source of their own
	byName   map[string]*source   // by initializer, for all other operands
	params   []*Parameter         // in file order, restored ones last
	named    map[string]*Parameter
	leftover []string // PyTorch parameters that no node of the file mentions
}

// decideRoles finds parameters, buffers and constants. It reads tensor contents only where names cannot tell.
func (m *Model) decideRoles() (r *roles, err error) {
	defer ir.Recover(&err) // an attribute of the wrong type
	r = &roles{m: m, uses: map[string][]operand{}, byUse: map[operand]*source{}, byName: map[string]*source{},
		named: map[string]*Parameter{}}
	if err := m.eachNode(func(n *node) {
		for i, name := range n.in {
			if m.inits[name] != nil {
				r.uses[name] = append(r.uses[name], operand{n, i})
			}
		}
	}); err != nil {
		return nil, err
	}
	if m.record != nil {
		r.fromRecord(m.record)
		return r.finished()
	}
	r.findLeftover()
	for _, t := range m.initList {
		if t.bad == nil && t.typ.DType.IsFloat() {
			if err := r.recoverNames(t); err != nil {
				return nil, err
			}
		}
	}
	var auto, rows []*tensor // tensors that exporters named: trained ones, and all
	for _, t := range m.initList {
		if t.bad != nil || !t.typ.DType.IsFloat() {
			continue
		}
		if r.byName[t.name] != nil {
			continue // another operand's record named it: all its readers share that parameter
		}
		rest := r.unbound(t)
		if len(rest) == 0 && len(r.uses[t.name]) > 0 && !slices.Contains(m.outputs, t.name) {
			continue
		}
		role, reason, err := r.classify(t, rest)
		if err != nil {
			return nil, err
		}
		lay := direct
		if role == RoleParameter && m.autoNamed(t.name) && m.batchRepeats(t) {
			lay, reason = repeated, reason+"; stored once, the exporter had expanded it along the batch"
		}
		p := r.add(t, t.name, lay, role, reason)
		r.byName[t.name] = &source{param: p, layout: lay, dims: t.typ.Dims}
		if m.autoNamed(t.name) {
			if role == RoleParameter {
				auto = append(auto, t)
			}
			rows = append(rows, t)
		}
	}
	for _, t := range rows {
		if err := r.retieRows(t); err != nil {
			return nil, err
		}
	}
	for _, t := range auto {
		if err := r.retie(t); err != nil {
			return nil, err
		}
	}
	r.unmergeByNode()
	r.restoreBiases()
	r.warnLost()
	return r.finished()
}

// finished applies the user's wishes and leaves out what nobody reads.
func (r *roles) finished() (*roles, error) {
	if err := r.userGlobs(); err != nil {
		return nil, err
	}
	bound := r.bound()
	r.params = slices.DeleteFunc(r.params, func(p *Parameter) bool { return !bound[p] })
	return r, nil
}

// bound lists the parameters that some operand still reads: ties and splits leave others that nobody reads.
func (r *roles) bound() map[*Parameter]bool {
	out := map[*Parameter]bool{}
	for _, s := range r.byName {
		out[s.param] = true
	}
	for _, s := range r.byUse {
		out[s.param] = true
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
	p := &Parameter{Name: name, Type: t.typ, Role: role, Reason: reason, Initializer: t.name, data: t.bytes}
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
	}) {
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

// recoverNames binds operands whose PyTorch name the exporter's metadata still tells, where the file's
// tensor has another: folded transposes (val_14) and merged equal tensors.
func (r *roles) recoverNames(t *tensor) error {
	for _, u := range r.uses[t.name] {
		placeholder, lay := fxOperand(u.n, u.i, t.typ.Dims)
		name := r.m.torch.params[placeholder]
		role := RoleParameter
		if name == "" {
			name, role = r.m.torch.buffers[placeholder], RoleBuffer
		}
		if name == "" || name == t.name || role == RoleBuffer && u.n.op != "BatchNormalization" {
			continue
		}
		if lay == transposed && len(t.typ.Dims) != 2 {
			continue
		}
		p, err := r.recovered(t, name, lay, role)
		if err != nil {
			return err
		}
		if p != nil {
			r.byUse[u] = &source{param: p, layout: lay, dims: t.typ.Dims}
		}
	}
	return nil
}

// recovered finds or makes the parameter called name with t's contents; nil when the contents disagree.
func (r *roles) recovered(t *tensor, name string, lay layout, role string) (*Parameter, error) {
	if p := r.named[name]; p != nil {
		same := p.Initializer == t.name && p.Transposed == (lay == transposed)
		if !same {
			r.m.warn("initializer %q is not the value of %q, which its use names; both are kept", t.name, name)
			return nil, nil
		}
		return p, nil
	}
	if other := r.m.inits[name]; other != nil {
		equal, err := r.equal(t, other, lay)
		if err != nil || !equal {
			return nil, err
		}
		p := r.add(other, name, direct, role, "named by the exporter's record of the PyTorch call")
		r.byName[name] = &source{param: p, dims: other.typ.Dims}
		return p, nil
	}
	why := "merged with equal tensors by the exporter; its own copy restored from the record of the PyTorch call"
	if lay == transposed {
		why = "transpose folded by the exporter; name and layout restored from the record of the PyTorch call"
	} else if len(r.uses[t.name]) == 1 {
		why = "renamed by the exporter; name restored from the record of the PyTorch call"
	}
	return r.add(t, name, lay, role, why), nil
}

// equal compares t, seen through a layout, with other, byte for byte.
func (r *roles) equal(t, other *tensor, lay layout) (bool, error) {
	if t.typ.DType != other.typ.DType || t.typ.Elems() != other.typ.Elems() {
		return false, nil
	}
	a, err := t.bytes()
	if err != nil {
		return false, err
	}
	b, err := other.bytes()
	if err != nil {
		return false, err
	}
	switch lay {
	case transposed:
		rows, cols, size := t.typ.Dims[0], t.typ.Dims[1], t.typ.DType.Size()
		if len(other.typ.Dims) != 2 || rows != other.typ.Dims[1] || cols != other.typ.Dims[0] {
			return false, nil
		}
		for k := range min(rows, cols) { // most pairs differ already in the diagonal's neighbours
			x, y := (k*cols+(k+1)%cols)*size, ((k+1)%cols*rows+k)*size
			if !bytes.Equal(a[x:x+size], b[y:y+size]) {
				return false, nil
			}
		}
		return bytes.Equal(transposeBytes(a, t.typ.Dims[0], t.typ.Dims[1], t.typ.DType.Size()), b), nil
	case flat:
		return slices.Equal(squeezed(t.typ.Dims), squeezed(other.typ.Dims)) && bytes.Equal(a, b), nil
	}
	return slices.Equal(t.typ.Dims, other.typ.Dims) && bytes.Equal(a, b), nil
}

// retie makes an unnamed parameter that is an exact copy or transpose of another one a view of it: an
// exporter that folds the transpose of a tied weight leaves two tensors where the model has one.
// Named parameters are never tied by content: layers that were deep-copied start out equal and must part.
func (r *roles) retie(t *tensor) error {
	if len(t.typ.Dims) != 2 || t.typ.Elems() < 16 || matches(r.m.opts.Untie, t.name) {
		return nil
	}
	if uniform, err := t.uniform(); err != nil || uniform {
		return err
	}
	for _, p := range r.params {
		o := r.m.inits[p.Initializer]
		if o == nil || o == t || p.Role == RoleConstant || p.Transposed || o.typ.Elems() != t.typ.Elems() {
			continue
		}
		for _, lay := range []layout{direct, transposed} {
			if lay == transposed && len(o.typ.Dims) != 2 {
				continue
			}
			same, err := r.equal(t, o, lay)
			if err != nil {
				return err
			}
			if same {
				r.byName[t.name] = &source{param: p, layout: lay, dims: t.typ.Dims}
				form := "a copy"
				if lay == transposed {
					form = "the transpose"
				}
				p.Reason += fmt.Sprintf("; %q, exactly %s of it, is tied to it", t.name, form)
				return nil
			}
		}
	}
	return nil
}

// retieRows makes an unnamed tensor each of whose rows is exactly one vector parameter a view of that parameter: the
// exporter folded what the model adds it to, such as the product of a recurrent network's zero first state.
func (r *roles) retieRows(t *tensor) error {
	d := t.typ.Dims
	if len(d) < 2 || d[len(d)-1] < 4 || t.typ.Elems() > maxTable || matches(r.m.opts.Untie, t.name) {
		return nil
	}
	if uniform, err := t.uniform(); err != nil || uniform {
		return err
	}
	data, err := t.bytes()
	if err != nil {
		return err
	}
	row := len(data) / (t.typ.Elems() / d[len(d)-1])
	if !bytes.Equal(data[row:], data[:len(data)-row]) {
		return nil
	}
	for _, p := range r.params {
		if p.Role != RoleParameter || p.Initializer == t.name || !slices.Equal(p.Type.Dims, d[len(d)-1:]) || p.Type.DType != t.typ.DType {
			continue
		}
		if own, err := p.data(); err != nil || !bytes.Equal(own, data[:row]) {
			continue
		}
		r.byName[t.name] = &source{param: p, layout: repeated, dims: d}
		p.Reason += fmt.Sprintf("; %q, whose rows are exactly it, is tied to it", t.name)
		return nil
	}
	return nil
}

// unmergeByNode gives each norm its own copy of a scale or bias that optimizers of other tools merged
// because all of them were ones or zeros. Without a PyTorch record the copy is named after the node.
func (r *roles) unmergeByNode() {
	for _, t := range r.m.initList {
		s := r.byName[t.name]
		uses := r.unbound(t)
		if s == nil || s.param.Role != RoleParameter || len(uses) < 2 || len(t.typ.Dims) != 1 {
			continue
		}
		if uniform, err := t.uniform(); err != nil || !uniform {
			continue
		}
		for _, u := range uses[1:] {
			if part := normPart(u); part != "" && normPart(uses[0]) != "" {
				p := r.add(t, path.Join(u.n.loc.Node, part), direct, RoleParameter,
					fmt.Sprintf("its own copy of %q, which several norms share because all its values are equal", t.name))
				r.byUse[u] = &source{param: p, dims: t.typ.Dims}
			}
		}
	}
}

// normPart names what operand u is to a normalization: weight, bias, or "" when it is neither.
func normPart(u operand) string {
	switch u.n.op {
	case "LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization":
		return []string{"", "weight", "bias", "", ""}[min(u.i, 4)]
	}
	return ""
}

// restoreBiases puts back all-zero biases that the exporter's optimizer removed: the recorded PyTorch call
// still names them, and training would have moved them away from zero.
func (r *roles) restoreBiases() {
	for _, n := range r.m.nodes {
		i, arg := 2, 2
		switch {
		case n.op == "Gemm" && n.fx.is("linear"):
		case n.op == "Gemm" && n.fx.is("addmm"):
			arg = 0
		case n.op == "Conv" && n.fx.is("conv1d", "conv2d", "conv3d", "convolution"):
		default:
			continue
		}
		name := r.m.torch.params[n.fx.arg(arg)]
		weight := r.m.inits[n.input(1)]
		if name == "" || n.has(i) || weight == nil || len(weight.typ.Dims) < 2 || r.named[name] != nil {
			continue
		}
		size := weight.typ.Dims[0]
		if n.op == "Gemm" && n.int("transB", 0) == 0 {
			size = weight.typ.Dims[1]
		}
		p := &Parameter{Name: name, Type: ir.T(weight.typ.DType, size), Role: RoleParameter,
			Reason: "all zeros, so the exporter dropped it; restored from the record of the PyTorch call"}
		p.data = func() ([]byte, error) { return make([]byte, p.Type.Bytes()), nil }
		p.DType, p.Dims = p.Type.DType.String(), p.Type.Dims
		r.params, r.named[name] = append(r.params, p), p
		for len(n.in) <= i {
			n.in = append(n.in, "")
		}
		n.in[i] = name
		r.byUse[operand{n, i}] = &source{param: p, dims: p.Type.Dims}
	}
}

// input is the name of input i, "" when it is absent.
func (n *node) input(i int) string {
	if i < len(n.in) {
		return n.in[i]
	}
	return ""
}
