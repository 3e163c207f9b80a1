package onnx

import (
	"regexp"
	"strconv"
	"strings"
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

// unmergeByRecord gives uses of a tensor of equal values copies of their own where PyTorch's record tells that they read
// different tensors: the layer scales of a network, all 1e-6, that the exporter had viewed alike and then merged. A copy
// takes the name of the parameter that is missing in the module of its reader, if that is one.
func (r *roles) unmergeByRecord() error {
	for _, t := range r.m.initList {
		s := r.byName[t.name]
		if s == nil || s.constant() || len(s.form.leaves()) != 1 || !r.m.autoNamed(t.name) || matches(r.m.opts.Tie, "*="+t.name) {
			continue
		}
		uses := r.unbound(t)
		if len(uses) < 2 {
			continue
		}
		if alike, err := t.alike(); err != nil || !alike {
			if err != nil {
				return err
			}
			continue
		}
		own := map[string]*source{t.name: s}
		for _, u := range uses {
			name, _ := fxOperand(u.n, u.i, t.typ.Dims)
			if name == "" || r.maker(name) != nil || r.m.torch.params[name] != "" || r.m.inits[name] != nil && name != t.name {
				continue
			}
			if own[name] == nil {
				own[name] = &source{r.copyFor(u, t, name, s.form)}
			}
			r.byUse[u] = own[name]
		}
	}
	return nil
}

// copyFor is f on a copy of its parameter for the reader u, which PyTorch's record has read fxName.
func (r *roles) copyFor(u operand, t *tensor, fxName string, f *form) *form {
	p := f.leaves()[0]
	split := func(name string) (module, last string) {
		i := strings.LastIndexByte(name, '.')
		return name[:max(i, 0)], name[i+1:]
	}
	_, last := split(p.Name)
	var inModule, alike []string
	for _, lost := range r.lostNames(r.leftover) {
		if module, l := split(lost); module == u.n.module {
			inModule = append(inModule, lost)
			if l == last {
				alike = append(alike, lost)
			}
		}
	}
	name := ""
	switch {
	case len(alike) == 1:
		name = alike[0]
	case len(inModule) == 1:
		name = inModule[0]
	}
	if name == "" {
		name = r.fresh(p.Name + "." + fxName)
	}
	c := *p
	c.Name, c.Reason = name, "its own copy of "+strconv.Quote(t.name)+", which the exporter had merged with equal tensors, told apart by the record of the PyTorch call"
	r.params, r.named[name] = append(r.params, &c), &c
	return f.with(p, leafOf(&c))
}
