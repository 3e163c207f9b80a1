package onnx

import (
	"regexp"
	"strconv"
)

// Exporters merge equal tensors, so that a scale of ones may serve a norm, which trains it, and also be a buffer, the
// missing scale of another norm or a literal of the program. The record of the PyTorch call tells these uses apart.

var fillers = regexp.MustCompile(`^%(ones|zeros|full|new_ones|new_zeros|new_full|ones_like|zeros_like|full_like|scalar_tensor|lift_fresh_copy|` +
	`lifted_tensor|arange|[bc]_\w+)(_\d+)?$`)

// constantUse reports whether PyTorch's record says that operand u is no parameter.
func (r *roles) constantUse(u operand) bool {
	c := u.n.fx
	arg := -1
	switch u.n.op {
	case "InstanceNormalization":
		if c.is("group_norm") {
			return u.i > 0
		}
		if c.is("instance_norm") {
			arg = u.i
		}
	case "LayerNormalization":
		if c.is("layer_norm", "native_layer_norm") {
			arg = u.i + 1
		}
	case "BatchNormalization":
		if c.is("batch_norm", "native_batch_norm", "_native_batch_norm_legit_functional", "_native_batch_norm_legit", "instance_norm") && u.i < 3 {
			arg = u.i
		}
	case "Add", "Sub", "Mul", "Div", "MatMul":
		if c.is("add", "add_", "sub", "mul", "mul_", "div", "matmul", "mm", "bmm", "rsub", "addcmul") {
			arg = u.i
		}
	case "Where":
		if c.is("where", "masked_fill") {
			arg = u.i
		}
	case "Pow":
		arg = u.i
	}
	if arg < 0 || u.i == 0 && u.n.op != "Add" && u.n.op != "Mul" && u.n.op != "Sub" && u.n.op != "Div" && u.n.op != "MatMul" || arg >= len(c.args) {
		return false
	}
	text := c.args[arg]
	if _, err := strconv.ParseFloat(text, 64); err == nil || text == "None" {
		return true
	}
	if name := c.arg(arg); name != "" && r.m.torch.buffers[name] != "" {
		return true
	}
	return fillers.MatchString(text)
}

// splitConstants gives uses of trained tensors that are constants of the program constants of their own.
func (r *roles) splitConstants() {
	for _, t := range r.m.initList {
		if t.bad != nil || !t.typ.DType.IsFloat() {
			continue
		}
		var p *Parameter
		for _, u := range r.unbound(t) {
			if s := r.byName[t.name]; s == nil || s.constant() || !r.constantUse(u) {
				continue
			}
			if p == nil {
				name := r.fresh(t.name + ".constant")
				p = r.add(t, name, direct, RoleConstant, "a buffer or constant that the exporter had merged with "+strconv.Quote(t.name)+", told apart by the record of the PyTorch call")
			}
			r.byUse[u] = &source{leafOf(p)}
		}
	}
}
