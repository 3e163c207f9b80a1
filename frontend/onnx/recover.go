package onnx

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

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
			r.byUse[u] = &source{leafOf(p).as(lay, t.typ.Dims)}
		}
	}
	return nil
}

// recovered finds or makes the parameter called name with t's contents; nil when the contents disagree.
func (r *roles) recovered(t *tensor, name string, lay layout, role string) (*Parameter, error) {
	if p := r.named[name]; p != nil {
		if p.Initializer == t.name && p.Transposed == (lay == transposed) {
			return p, nil
		}
		if same, err := r.holds(t, p, lay); err != nil || same {
			if same {
				p.Reason += fmt.Sprintf("; %q, another copy of it, is tied to it", t.name)
			}
			return p, err
		}
		r.m.warn("initializer %q is not the value of %q, which its use names; both are kept", t.name, name)
		return nil, nil
	}
	if other := r.m.inits[name]; other != nil {
		equal, err := r.equal(t, other, lay)
		if err != nil || !equal {
			return nil, err
		}
		p := r.add(other, name, direct, role, "named by the exporter's record of the PyTorch call")
		r.byName[name] = &source{leafOf(p)}
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

// holds reports whether t, which a node reads through a layout, holds exactly parameter p.
func (r *roles) holds(t *tensor, p *Parameter, lay layout) (bool, error) {
	if t.typ.DType != p.Type.DType || t.typ.Elems() != p.Type.Elems() || lay == transposed && len(p.Type.Dims) != 2 {
		return false, nil
	}
	f := leafOf(p).as(lay, t.typ.Dims)
	if !slices.Equal(f.typ.Dims, t.typ.Dims) {
		return false, nil
	}
	if t.absent || p.absent {
		return true, nil // as far as can be told: the record says so
	}
	want, err := t.bytes()
	if err != nil {
		return false, err
	}
	got, err := f.bytes((*Parameter).contents)
	return bytes.Equal(got, want), err
}

// equal compares t, seen through a layout, with other, byte for byte.
func (r *roles) equal(t, other *tensor, lay layout) (bool, error) {
	if t.typ.DType != other.typ.DType || t.typ.Elems() != other.typ.Elems() {
		return false, nil
	}
	if t.absent || other.absent { // by the dims alone: a record says that they are one
		d := other.typ.Dims
		return lay == flat && slices.Equal(squeezed(t.typ.Dims), squeezed(d)) || lay == direct && slices.Equal(t.typ.Dims, d) ||
			lay == transposed && len(d) == 2 && slices.Equal(t.typ.Dims, []int{d[1], d[0]}), nil
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
		r.byUse[operand{n, i}] = &source{leafOf(p)}
	}
}

// input is the name of input i, "" when it is absent.
func (n *node) input(i int) string {
	if i < len(n.in) {
		return n.in[i]
	}
	return ""
}
