package roles

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
)

// recoverNames binds operands whose PyTorch name the exporter's metadata still tells, where the file's
// tensor has another: folded transposes (val_14) and merged equal tensors.
func (r *Roles) recoverNames(t *model.Tensor) error {
	for _, u := range r.Uses[t.Name] {
		placeholder, lay := fxOperand(u.Node, u.Index, t.Type.Dims)
		name := r.m.Torch.Params[placeholder]
		role := RoleParameter
		if name == "" {
			name, role = r.m.Torch.Buffers[placeholder], RoleBuffer
		}
		if name == "" || name == t.Name || role == RoleBuffer && u.Node.Op != "BatchNormalization" {
			continue
		}
		if lay == transposed && len(t.Type.Dims) != 2 {
			continue
		}
		p, err := r.recovered(t, name, lay, role)
		if err != nil {
			return err
		}
		if p != nil {
			r.ByUse[u] = &Source{leafOf(p).as(lay, t.Type.Dims)}
		}
	}
	return nil
}

// recovered finds or makes the parameter called name with t's contents; nil when the contents disagree.
func (r *Roles) recovered(t *model.Tensor, name string, lay layout, role string) (*Parameter, error) {
	if p := r.Named[name]; p != nil {
		if p.Initializer == t.Name && p.Transposed == (lay == transposed) {
			return p, nil
		}
		if same, err := r.holds(t, p, lay); err != nil || same {
			if same {
				p.Reason += fmt.Sprintf("; %q, another copy of it, is tied to it", t.Name)
			}
			return p, err
		}
		r.m.Warn("initializer %q does not hold the values of parameter %q, as which it is used by the exporter's record; both are kept", t.Name, name)
		return nil, nil
	}
	if other := r.m.Inits[name]; other != nil {
		equal, err := r.equal(t, other, lay)
		if err != nil || !equal {
			return nil, err
		}
		p := r.add(other, name, direct, role, "named by the exporter's record of the PyTorch call")
		r.ByName[name] = &Source{leafOf(p)}
		return p, nil
	}
	why := "merged with equal tensors by the exporter; its own copy restored from the record of the PyTorch call"
	if lay == transposed {
		why = "transpose folded by the exporter; name and layout restored from the record of the PyTorch call"
	} else if len(r.Uses[t.Name]) == 1 {
		why = "renamed by the exporter; name restored from the record of the PyTorch call"
	}
	return r.add(t, name, lay, role, why), nil
}

// holds reports whether t, which a node reads through a layout, holds exactly parameter p.
func (r *Roles) holds(t *model.Tensor, p *Parameter, lay layout) (bool, error) {
	if t.Type.DType != p.Type.DType || t.Type.Elems() != p.Type.Elems() || lay == transposed && len(p.Type.Dims) != 2 {
		return false, nil
	}
	f := leafOf(p).as(lay, t.Type.Dims)
	if !slices.Equal(f.Type.Dims, t.Type.Dims) {
		return false, nil
	}
	if t.Absent || p.Absent {
		return true, nil // as far as can be told: the record says so
	}
	want, err := t.Bytes()
	if err != nil {
		return false, err
	}
	got, err := f.Bytes((*Parameter).Contents)
	return bytes.Equal(got, want), err
}

// equal compares t, seen through a layout, with other, byte for byte.
func (r *Roles) equal(t, other *model.Tensor, lay layout) (bool, error) {
	if t.Type.DType != other.Type.DType || t.Type.Elems() != other.Type.Elems() {
		return false, nil
	}
	if t.Absent || other.Absent { // by the dims alone: a record says that they are one
		d := other.Type.Dims
		return lay == flat && slices.Equal(fold.Squeezed(t.Type.Dims), fold.Squeezed(d)) || lay == direct && slices.Equal(t.Type.Dims, d) ||
			lay == transposed && len(d) == 2 && slices.Equal(t.Type.Dims, []int{d[1], d[0]}), nil
	}
	a, err := t.Bytes()
	if err != nil {
		return false, err
	}
	b, err := other.Bytes()
	if err != nil {
		return false, err
	}
	switch lay {
	case transposed:
		rows, cols, size := t.Type.Dims[0], t.Type.Dims[1], t.Type.DType.Size()
		if len(other.Type.Dims) != 2 || rows != other.Type.Dims[1] || cols != other.Type.Dims[0] {
			return false, nil
		}
		for k := range min(rows, cols) { // most pairs differ already in the diagonal's neighbours
			x, y := (k*cols+(k+1)%cols)*size, ((k+1)%cols*rows+k)*size
			if !bytes.Equal(a[x:x+size], b[y:y+size]) {
				return false, nil
			}
		}
		return bytes.Equal(transposeBytes(a, t.Type.Dims[0], t.Type.Dims[1], t.Type.DType.Size()), b), nil
	case flat:
		return slices.Equal(fold.Squeezed(t.Type.Dims), fold.Squeezed(other.Type.Dims)) && bytes.Equal(a, b), nil
	}
	return slices.Equal(t.Type.Dims, other.Type.Dims) && bytes.Equal(a, b), nil
}

// restoreBiases puts back all-zero biases that the exporter's optimizer removed: the recorded PyTorch call
// still names them, and training would have moved them away from zero.
func (r *Roles) restoreBiases() {
	for _, n := range r.m.Nodes {
		i, arg := 2, 2
		switch {
		case n.Op == "Gemm" && n.Torch.Is("linear"):
		case n.Op == "Gemm" && n.Torch.Is("addmm"):
			arg = 0
		case n.Op == "Conv" && n.Torch.Is("conv1d", "conv2d", "conv3d", "convolution"):
		default:
			continue
		}
		name := r.m.Torch.Params[n.Torch.Arg(arg)]
		weight := r.m.Inits[n.Input(1)]
		if name == "" || n.Has(i) || weight == nil || len(weight.Type.Dims) < 2 || r.Named[name] != nil {
			continue
		}
		size := weight.Type.Dims[0]
		if n.Op == "Gemm" && n.Int("transB", 0) == 0 {
			size = weight.Type.Dims[1]
		}
		p := &Parameter{Name: name, Type: ir.T(weight.Type.DType, size), Role: RoleParameter,
			Reason: "all zeros, so the exporter dropped it; restored from the record of the PyTorch call"}
		p.Data = func() ([]byte, error) { return make([]byte, p.Type.Bytes()), nil }
		p.DType, p.Dims = p.Type.DType.String(), p.Type.Dims
		r.Params, r.Named[name] = append(r.Params, p), p
		for len(n.In) <= i {
			n.In = append(n.In, "")
		}
		n.In[i] = name
		r.ByUse[model.Operand{Node: n, Index: i}] = &Source{leafOf(p)}
	}
}

// tellScoped notes the other names of tied parameters, which a TorchScript file holds once, under the first of them: a module
// such as /lm_head that reads another's parameter, in its place, is one that shares it. Scopes of nodes are the names of modules.
func (r *Roles) tellScoped() {
	layers := r.layerScopes()
	for _, t := range r.m.InitList {
		for _, u := range r.Uses[t.Name] {
			s := r.ByUse[u]
			if s == nil {
				s = r.ByName[t.Name]
			}
			scope := scopeOf(u.Node.Loc.Node)
			if s == nil || s.Constant() || !layers[scope] {
				continue
			}
			p := s.Param()
			dot := strings.LastIndexByte(p.Name, '.')
			if dot < 0 || AutoNamed(r.m, p.Name) {
				continue
			}
			module, last := p.Name[:dot], p.Name[dot:]
			name := scope + last
			switch {
			case last != ".weight" && last != ".bias", scope == module, strings.HasPrefix(module, scope+"."), calledAgain(p.Name, u.Node.Loc.Node):
			case r.Named[name] != nil, r.m.Inits[name] != nil:
			case slices.ContainsFunc(p.Aliases, func(a string) bool { return a == name || calledAgain(a, u.Node.Loc.Node) }):
			default:
				p.Aliases = append(p.Aliases, name)
				p.Reason += fmt.Sprintf("; %q is the same tensor, by the scope of the node that reads it", name)
			}
		}
	}
}

// layerScopes are the scopes whose nodes are those of one layer with weights, Linear, Embedding, a convolution or a norm, and no more.
func (r *Roles) layerScopes() map[string]bool {
	kinds := map[string]int{} // how many nodes of a layer a scope has; below 0 when it has others
	for _, n := range r.m.Nodes {
		scope := scopeOf(n.Loc.Node)
		switch n.Op {
		case "MatMul", "Gemm", "Gather", "Conv", "ConvTranspose", "LayerNormalization", "GroupNormalization", "InstanceNormalization":
			kinds[scope] += 1000
		case "Transpose", "Add":
		default:
			kinds[scope] -= 1 << 20
		}
		for up := scope; ; { // what has scopes inside is a module of modules
			dot := strings.LastIndexByte(up, '.')
			if dot < 0 {
				break
			}
			up = up[:dot]
			kinds[up] -= 1 << 20
		}
	}
	out := map[string]bool{}
	for scope, k := range kinds {
		out[scope] = scope != "" && k == 1000
	}
	return out
}

// scopeOf is the module that a node of a TorchScript file is in: lm_head of /lm_head/MatMul.
func scopeOf(node string) string {
	if !strings.HasPrefix(node, "/") {
		return ""
	}
	parts := strings.Split(node[1:], "/")
	return strings.Join(parts[:len(parts)-1], ".")
}
