package roles

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
)

// Exporters merge equal tensors, so that a scale of ones may serve a norm, which trains it, and also be a buffer, the
// missing scale of another norm or a literal of the program. The record of the PyTorch call tells these uses apart.

var fillers = regexp.MustCompile(`^%(ones|zeros|full|new_ones|new_zeros|new_full|ones_like|zeros_like|full_like|scalar_tensor|lift_fresh_copy|` +
	`lifted_tensor|arange|[bc]_\w+)(_\d+)?$`)

// constantUse reports whether PyTorch's record says that operand u is no parameter.
func (r *Roles) constantUse(u model.Operand) bool {
	c := u.Node.Torch
	arg := -1
	switch u.Node.Op {
	case "InstanceNormalization":
		if c.Is("group_norm") {
			return u.Index > 0
		}
		if c.Is("instance_norm") {
			arg = u.Index
		}
	case "LayerNormalization":
		if c.Is("layer_norm", "native_layer_norm") {
			arg = u.Index + 1
		}
	case "BatchNormalization":
		if c.Is("batch_norm", "native_batch_norm", "_native_batch_norm_legit_functional", "_native_batch_norm_legit", "instance_norm") && u.Index < 3 {
			arg = u.Index
		}
	case "Add", "Sub", "Mul", "Div", "MatMul":
		if c.Is("add", "add_", "sub", "mul", "mul_", "div", "matmul", "mm", "bmm", "rsub", "addcmul") {
			arg = u.Index
		}
	case "Where":
		if c.Is("where", "masked_fill") {
			arg = u.Index
		}
	case "Pow":
		arg = u.Index
	}
	if arg < 0 || u.Index == 0 && u.Node.Op != "Add" && u.Node.Op != "Mul" && u.Node.Op != "Sub" && u.Node.Op != "Div" && u.Node.Op != "MatMul" || arg >= len(c.Args) {
		return false
	}
	text := c.Args[arg]
	if _, err := strconv.ParseFloat(text, 64); err == nil || text == "None" {
		return true
	}
	if name := c.Arg(arg); name != "" && r.m.Torch.Buffers[name] != "" {
		return true
	}
	return fillers.MatchString(text)
}

// splitConstants gives uses of trained tensors that are constants of the program constants of their own.
func (r *Roles) splitConstants() {
	for _, t := range r.m.InitList {
		if t.Bad != nil || !t.Type.DType.IsFloat() {
			continue
		}
		var p *Parameter
		for _, u := range r.Unbound(t) {
			if s := r.ByName[t.Name]; s == nil || s.Constant() || !r.constantUse(u) {
				continue
			}
			if p == nil {
				name := r.fresh(t.Name + ".constant")
				p = r.add(t, name, direct, RoleConstant, "a buffer or constant that the exporter had merged with "+strconv.Quote(t.Name)+", told apart by the record of the PyTorch call")
			}
			r.ByUse[u] = &Source{leafOf(p)}
		}
	}
}

// unmergeByRecord gives uses of a tensor of equal values copies of their own where PyTorch's record tells that they read
// different tensors: the layer scales of a network, all 1e-6, that the exporter had viewed alike and then merged. A copy
// takes the name of the parameter that is missing in the module of its reader, if that is one.
func (r *Roles) unmergeByRecord() error {
	for _, t := range r.m.InitList {
		s := r.ByName[t.Name]
		if s == nil || s.Constant() || len(s.Form.Leaves()) != 1 || !AutoNamed(r.m, t.Name) || Matches(r.m.Options.Tie, "*="+t.Name) {
			continue
		}
		uses := r.Unbound(t)
		if len(uses) < 2 {
			continue
		}
		if alike, err := alike(t); err != nil || !alike {
			if err != nil {
				return err
			}
			continue
		}
		own := map[string]*Source{t.Name: s}
		for _, u := range uses {
			name, _ := fxOperand(u.Node, u.Index, t.Type.Dims)
			if name == "" || r.maker(name) != nil || r.m.Torch.Params[name] != "" || r.m.Inits[name] != nil && name != t.Name {
				continue
			}
			if own[name] == nil {
				own[name] = &Source{r.copyFor(u, t, name, s.Form)}
			}
			r.ByUse[u] = own[name]
		}
	}
	return nil
}

// copyFor is f on a copy of its parameter for the reader u, which PyTorch's record has read fxName.
func (r *Roles) copyFor(u model.Operand, t *model.Tensor, fxName string, f *Form) *Form {
	p := f.Leaves()[0]
	split := func(name string) (module, last string) {
		i := strings.LastIndexByte(name, '.')
		return name[:max(i, 0)], name[i+1:]
	}
	_, last := split(p.Name)
	var inModule, alike []string
	for _, lost := range r.lostNames(r.leftover) {
		if module, l := split(lost); module == u.Node.Module {
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
	c.Name, c.Reason = name, "its own copy of "+strconv.Quote(t.Name)+", which the exporter had merged with equal tensors, told apart by the record of the PyTorch call"
	r.Params, r.Named[name] = append(r.Params, &c), &c
	return f.with(p, leafOf(&c))
}
