package roles

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
)

// retie makes an unnamed parameter that is an exact copy or transpose of another one a view of it: an
// exporter that folds the transpose of a tied weight leaves two tensors where the model has one.
// Named parameters are never tied by content: layers that were deep-copied start out equal and must part.
func (r *Roles) retie(t *model.Tensor) error {
	if len(t.Type.Dims) != 2 || t.Type.Elems() < 16 || t.Absent || Matches(r.m.Options.Untie, t.Name) {
		return nil
	}
	if uniform, err := uniform(t); err != nil || uniform {
		return err
	}
	for _, p := range r.Params {
		o := r.m.Inits[p.Initializer]
		if o == nil || o == t || o.Absent || p.Role == RoleConstant || p.Transposed || o.Type.Elems() != t.Type.Elems() {
			continue
		}
		for _, lay := range []layout{direct, transposed} {
			if lay == transposed && len(o.Type.Dims) != 2 {
				continue
			}
			same, err := r.equal(t, o, lay)
			if err != nil {
				return err
			}
			if same {
				r.ByName[t.Name] = &Source{leafOf(p).as(lay, t.Type.Dims)}
				form := "a copy"
				if lay == transposed {
					form = "the transpose"
				}
				p.Reason += fmt.Sprintf("; %q, exactly %s of it, is tied to it", t.Name, form)
				return nil
			}
		}
	}
	return nil
}

// retieRows makes an unnamed tensor each of whose rows is exactly one vector parameter a view of that parameter: the
// exporter folded what the model adds it to, such as the product of a recurrent network's zero first state.
func (r *Roles) retieRows(t *model.Tensor) error {
	d := t.Type.Dims
	if len(d) < 2 || d[len(d)-1] < 4 || t.Type.Elems() > maxTable || t.Absent || Matches(r.m.Options.Untie, t.Name) {
		return nil
	}
	if uniform, err := uniform(t); err != nil || uniform {
		return err
	}
	data, err := t.Bytes()
	if err != nil {
		return err
	}
	row := len(data) / (t.Type.Elems() / d[len(d)-1])
	if !bytes.Equal(data[row:], data[:len(data)-row]) {
		return nil
	}
	for _, p := range r.Params {
		if p.Role != RoleParameter || p.Initializer == t.Name || p.Absent || !slices.Equal(p.Type.Dims, d[len(d)-1:]) || p.Type.DType != t.Type.DType {
			continue
		}
		if own, err := p.Data(); err != nil || !bytes.Equal(own, data[:row]) {
			continue
		}
		r.ByName[t.Name] = &Source{leafOf(p).expand(d)}
		p.Reason += fmt.Sprintf("; %q, whose rows are exactly it, is tied to it", t.Name)
		return nil
	}
	return nil
}

// unmergeByNode gives each norm its own copy of a scale or bias that optimizers of other tools merged
// because all of them were ones or zeros. Without a PyTorch record the copy is named after the node.
func (r *Roles) unmergeByNode() {
	for _, t := range r.m.InitList {
		s := r.ByName[t.Name]
		uses := r.Unbound(t)
		if s == nil || s.Param().Role != RoleParameter || len(uses) < 2 || len(t.Type.Dims) != 1 {
			continue
		}
		if alike, err := alike(t); err != nil || !alike {
			continue
		}
		for _, u := range uses[1:] {
			if r.m.TorchScript() && calledAgain(t.Name, u.Node.Loc.Node) {
				continue
			}
			if placeholder, _ := fxOperand(u.Node, u.Index, t.Type.Dims); placeholder != "" && r.m.Torch.Params[placeholder] == s.Param().Name {
				continue // recorded as a use of that very parameter, by a module that is called twice
			}
			if part := model.NormPart(u); part != "" && model.NormPart(uses[0]) != "" {
				p := r.add(t, path.Join(u.Node.Loc.Node, part), direct, RoleParameter,
					fmt.Sprintf("its own copy of %q, which several norms share because all its values are equal", t.Name))
				r.ByUse[u] = &Source{leafOf(p)}
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
