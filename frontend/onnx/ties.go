package onnx

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// retie makes an unnamed parameter that is an exact copy or transpose of another one a view of it: an
// exporter that folds the transpose of a tied weight leaves two tensors where the model has one.
// Named parameters are never tied by content: layers that were deep-copied start out equal and must part.
func (r *roles) retie(t *tensor) error {
	if len(t.typ.Dims) != 2 || t.typ.Elems() < 16 || t.absent || matches(r.m.opts.Untie, t.name) {
		return nil
	}
	if uniform, err := t.uniform(); err != nil || uniform {
		return err
	}
	for _, p := range r.params {
		o := r.m.inits[p.Initializer]
		if o == nil || o == t || o.absent || p.Role == RoleConstant || p.Transposed || o.typ.Elems() != t.typ.Elems() {
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
				r.byName[t.name] = &source{leafOf(p).as(lay, t.typ.Dims)}
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
	if len(d) < 2 || d[len(d)-1] < 4 || t.typ.Elems() > maxTable || t.absent || matches(r.m.opts.Untie, t.name) {
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
		if p.Role != RoleParameter || p.Initializer == t.name || p.absent || !slices.Equal(p.Type.Dims, d[len(d)-1:]) || p.Type.DType != t.typ.DType {
			continue
		}
		if own, err := p.data(); err != nil || !bytes.Equal(own, data[:row]) {
			continue
		}
		r.byName[t.name] = &source{leafOf(p).expand(d)}
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
		if s == nil || s.param().Role != RoleParameter || len(uses) < 2 || len(t.typ.Dims) != 1 {
			continue
		}
		if alike, err := t.alike(); err != nil || !alike {
			continue
		}
		for _, u := range uses[1:] {
			if r.m.torchScript() && calledAgain(t.name, u.n.loc.Node) {
				continue
			}
			if placeholder, _ := fxOperand(u.n, u.i, t.typ.Dims); placeholder != "" && r.m.torch.params[placeholder] == s.param().Name {
				continue // recorded as a use of that very parameter, by a module that is called twice
			}
			if part := normPart(u); part != "" && normPart(uses[0]) != "" {
				p := r.add(t, path.Join(u.n.loc.Node, part), direct, RoleParameter,
					fmt.Sprintf("its own copy of %q, which several norms share because all its values are equal", t.name))
				r.byUse[u] = &source{leafOf(p)}
			}
		}
	}
}

// calledAgain reports whether a node of a TorchScript file is another call of the module that a parameter belongs to: node
// names are its scopes, such as /layers.0/norm_1/LayerNormalization for the second call of the module of layers.0.norm.weight.
func calledAgain(parameter, node string) bool {
	module := strings.Split(parameter, ".")
	module = module[:len(module)-1]
	scopes := strings.Split(node, "/")
	scopes = strings.Split(strings.Join(scopes[:len(scopes)-1], "."), ".")
	if len(module) == 0 || len(scopes) < len(module) {
		return false
	}
	for i, name := range scopes[len(scopes)-len(module):] {
		rest, ok := strings.CutPrefix(name, module[i])
		if _, err := strconv.Atoi(strings.TrimPrefix(rest, "_")); !ok || rest != "" && (rest[0] != '_' || err != nil) {
			return false
		}
	}
	return true
}

// normPart names what operand u is to a normalization: weight, bias, or "" when it is neither.
func normPart(u operand) string {
	switch u.n.op {
	case "LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
		"SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization", "com.microsoft.LayerNormalization", "com.microsoft.GroupNorm":
		return []string{"", "weight", "bias", "", ""}[min(u.i, 4)]
	case "com.microsoft.SkipLayerNormalization":
		return []string{"", "", "weight", "bias", "skip.bias", ""}[min(u.i, 5)]
	case "com.microsoft.SkipSimplifiedLayerNormalization":
		return []string{"", "", "weight", "bias", ""}[min(u.i, 4)]
	}
	return ""
}
