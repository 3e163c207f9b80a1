package roles

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
)

// PyTorch's exporters put the gates of a recurrent layer into ONNX's order and join both directions and both biases in
// new tensors. The record of the call still names the parameters, which are restored here.

// onnxGates lists, for each gate in ONNX's order, its place in PyTorch's (torch.nn.LSTM: input, forget, cell, output;
// ONNX: input, output, forget, cell. torch.nn.GRU: reset, update, new; ONNX: update, reset, hidden).
var onnxGates = map[string][]int{"LSTM": {0, 3, 1, 2}, "GRU": {1, 0, 2}, "RNN": {0}}

var namedRE = regexp.MustCompile(`%(\w+)`)

// recoverRecurrent restores the parameters of LSTM, GRU and RNN nodes whose tensors the exporter rearranged.
func (r *Roles) recoverRecurrent() error {
	layers := map[string]int{} // by call: layers of it seen so far
	for _, n := range r.m.Nodes {
		gates := onnxGates[n.Op]
		if gates == nil || !n.Torch.Is("lstm", "gru", "rnn_tanh", "rnn_relu") || len(n.Torch.Args) < 4 {
			continue
		}
		key := n.Torch.Target + fmt.Sprint(n.Torch.Args)
		layer := layers[key]
		layers[key]++
		var names []string
		for _, f := range namedRE.FindAllStringSubmatch(n.Torch.Args[2], -1) {
			names = append(names, r.m.Torch.Params[f[1]])
		}
		dirs, each := 1, 2
		if n.Str("direction", "forward") == "bidirectional" {
			dirs = 2
		}
		if n.Torch.Args[3] == "True" {
			each = 4
		}
		first := layer * dirs * each
		if first+dirs*each > len(names) || slices.Contains(names[first:first+dirs*each], "") {
			continue // projections, or parameters that are computed
		}
		for i := 1; i <= 3 && (i < 3 || each == 4); i++ {
			if err := r.recoverGates(n, i, dirs, each, names[first:]); err != nil {
				return err
			}
		}
	}
	return nil
}

// recoverGates restores operand i of a recurrent node: its input weights, state weights or biases. names are those of
// the layer, each of them a direction.
func (r *Roles) recoverGates(n *model.Node, i, dirs, each int, names []string) error {
	t := r.m.Inits[n.Input(i)]
	if t == nil || t.Bad != nil || t.Absent || !AutoNamed(r.m, t.Name) || r.ByName[t.Name] != nil || len(t.Type.Dims) < 2 || t.Type.Dims[0] != dirs {
		return nil
	}
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	gates := onnxGates[n.Op]
	d, size := t.Type.Dims, t.Type.DType.Size()
	parts := 1 // tensors of PyTorch's side by side: the two biases
	if i == 3 {
		parts = 2
	}
	rows := d[1] / parts // of one PyTorch tensor
	if rows%len(gates) != 0 || d[1]%parts != 0 || ir.Product(d) == 0 {
		return nil
	}
	block := size * ir.Product(d[2:]) * rows / len(gates) // bytes of one gate
	var whole []*Form
	var made []*Parameter
	for dir := range dirs {
		var side []*Form
		for k := range parts {
			from := (dir*parts + k) * rows / len(gates) * len(gates) * size * ir.Product(d[2:])
			own := make([]byte, 0, rows*size*ir.Product(d[2:]))
			for g := range gates {
				at := slices.Index(gates, g)
				own = append(own, data[from+at*block:][:block]...)
			}
			name := names[dir*each+i-1]
			if i == 3 {
				name = names[dir*each+2+k]
			}
			p, fits, err := r.gateParameter(t, name, append([]int{rows}, d[2:]...), own)
			if err != nil || !fits {
				return err
			}
			made = append(made, p)
			var order []*Form
			for _, g := range gates {
				order = append(order, leafOf(p).slice(0, g*rows/len(gates), rows/len(gates)))
			}
			side = append(side, join(0, order...))
		}
		f := join(0, side...)
		whole = append(whole, f.reshape(append([]int{1}, f.Type.Dims...)))
	}
	for _, p := range made {
		if r.Named[p.Name] == nil {
			r.Params, r.Named[p.Name] = append(r.Params, p), p
		}
		if r.m.Inits[p.Name] != nil && r.ByName[p.Name] == nil {
			r.ByName[p.Name] = &Source{leafOf(p)}
		}
	}
	for _, u := range r.Unbound(t) {
		if u.Node == n && u.Index == i {
			r.ByUse[u] = &Source{join(0, whole...)}
		}
	}
	return nil
}

// gateParameter finds or makes the parameter called name with the given contents; fits is false when it exists with
// others, so that the exporter's tensor is no rearrangement of it.
func (r *Roles) gateParameter(t *model.Tensor, name string, dims []int, data []byte) (p *Parameter, fits bool, err error) {
	p = r.Named[name]
	if p == nil {
		reason := "gates reordered and joined with others by the exporter; name and order restored from the record of the PyTorch call"
		p = &Parameter{Name: name, Type: ir.Type{DType: t.Type.DType, Dims: dims}, Role: RoleParameter, Reason: reason, Initializer: t.Name}
		p.Data = func() ([]byte, error) { return data, nil }
		if o := r.m.Inits[name]; o != nil {
			p.Initializer, p.Data, p.Absent = name, o.Bytes, o.Absent
			p.Type = o.Type
		}
		p.DType, p.Dims = p.Type.DType.String(), p.Type.Dims
	}
	if p.Absent {
		return p, false, nil
	}
	own, err := p.Data()
	return p, err == nil && slices.Equal(p.Type.Dims, dims) && bytes.Equal(own, data), err
}
