package roles

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
)

// glob compiles a pattern in which * stands for any text, dots, slashes and line ends included, and ? for one character.
// Bytes that are no UTF-8, which regexp would not compile, are what it takes them for in names: U+FFFD.
func glob(pattern string) *regexp.Regexp {
	q := regexp.QuoteMeta(string([]rune(pattern)))
	q = strings.ReplaceAll(strings.ReplaceAll(q, `\*`, ".*"), `\?`, ".")
	return regexp.MustCompile("(?s)^" + q + "$")
}

// Matches reports whether one of the globs matches name.
func Matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob(p).MatchString(name) })
}

// find lists the parameters whose name, or initializer's name, matches. None is an error: it is a typing slip.
func (r *Roles) find(flag, pattern string) ([]*Parameter, error) {
	bound := r.bound()
	if p := r.Named[pattern]; bound[p] { // a plain name means that one, not the copies made of it
		return []*Parameter{p}, nil
	}
	var out []*Parameter
	re := glob(pattern)
	for _, p := range r.Params {
		if bound[p] && (re.MatchString(p.Name) || re.MatchString(p.Initializer)) {
			out = append(out, p)
		}
	}
	if len(out) == 0 && pattern != "" { // lora_* also means model.layer.lora_A.weight
		tail := glob("*." + pattern)
		for _, p := range r.Params {
			if bound[p] && (tail.MatchString(p.Name) || tail.MatchString(p.Initializer)) {
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s %q matches no float initializer; gtc inspect lists them", flag, pattern)
	}
	return out, nil
}

// AskedByTrain begins the reason of a parameter that the user wants trained.
const AskedByTrain = "asked for by --train "

// ofStatistics begins the reason of a buffer that batch normalization updates.
const ofStatistics = "running statistics of a batch normalization"

// applyRule gives the parameters that match a role. "--freeze *" is about parameters and running statistics: constants
// stay constants. "--train *" is about what gradients can train: running statistics stay what they are, and move again when
// an earlier rule froze them.
func (r *Roles) applyRule(rule model.RoleRule) error {
	flag := "--freeze"
	if rule.Train {
		flag = "--train"
	}
	found, err := r.find(flag, rule.Glob)
	if err != nil {
		return err
	}
	kept := 0
	for _, p := range found {
		switch {
		case p.Statistic && rule.Train:
			p.Reason = ofStatistics
			kept++
		case p.Statistic:
			p.Reason = FrozenBy + rule.Glob
		case rule.Train:
			p.Role, p.Reason = RoleParameter, AskedByTrain+rule.Glob
		case p.Role == RoleParameter || rule.Glob == p.Name:
			p.Role, p.Reason = RoleBuffer, FrozenBy+rule.Glob
		}
	}
	if kept > 0 {
		r.m.Warn("--train %q matches running statistics of batch normalization (%d tensors), which no gradient trains: they stay "+
			"statistics", rule.Glob, kept)
	}
	return nil
}

// userGlobs applies --train and --freeze, later ones over earlier ones, then --tie and --untie.
func (r *Roles) userGlobs() error {
	var rules []model.RoleRule
	for _, g := range r.m.Options.Train {
		rules = append(rules, model.RoleRule{Train: true, Glob: g})
	}
	for _, g := range r.m.Options.Freeze {
		rules = append(rules, model.RoleRule{Train: false, Glob: g})
	}
	for _, rule := range append(rules, r.m.Options.Roles...) {
		if err := r.applyRule(rule); err != nil {
			return err
		}
	}
	for _, pair := range r.m.Options.Tie {
		if err := r.tie(pair); err != nil {
			return err
		}
	}
	for _, pattern := range r.m.Options.Untie {
		found, err := r.find("--untie", pattern)
		if err != nil {
			return err
		}
		for _, p := range found {
			r.untie(p)
		}
	}
	return nil
}

// tie makes "copy=original": every use of copy reads original, transposed when only that fits.
func (r *Roles) tie(pair string) error {
	from, to, ok := strings.Cut(pair, "=")
	if !ok {
		return fmt.Errorf("--tie %q must be COPY=ORIGINAL", pair)
	}
	originals, err := r.find("--tie", to)
	if err != nil {
		return err
	}
	copies, err := r.find("--tie", from)
	if err != nil {
		return err
	}
	original := originals[0]
	if len(originals) > 1 {
		return fmt.Errorf("--tie %q: %q matches %d tensors, but must match one", pair, to, len(originals))
	}
	for _, c := range copies {
		if c == original {
			continue
		}
		lay, err := tieLayout(c.Type, original.Type)
		if err != nil {
			return fmt.Errorf("--tie %q: %w", pair, err)
		}
		r.redirect(c, original, lay)
		if lay == direct {
			original.Aliases = append(slices.Clone(original.Aliases), append([]string{c.Name}, c.Aliases...)...)
		}
		original.Reason += fmt.Sprintf("; %q is tied to it by --tie", c.Name)
	}
	return nil
}

func tieLayout(c, original ir.Type) (layout, error) {
	switch {
	case c.Equal(original):
		return direct, nil
	case c.DType == original.DType && len(c.Dims) == 2 && len(original.Dims) == 2 &&
		c.Dims[0] == original.Dims[1] && c.Dims[1] == original.Dims[0]:
		return transposed, nil
	}
	return direct, fmt.Errorf("%s is neither the shape nor the transpose of %s", c, original)
}

// redirect makes all sources of parameter c read original through the layout lay.
func (r *Roles) redirect(c, original *Parameter, lay layout) {
	by := leafOf(original).as(lay, c.Type.Dims)
	for _, s := range r.ByName {
		s.Form = s.Form.with(c, by)
	}
	for _, s := range r.ByUse {
		s.Form = s.Form.with(c, by)
	}
}

// untie gives each use of p but the first its own copy, numbered p.1, p.2, …
func (r *Roles) untie(p *Parameter) {
	count := 0
	for _, t := range r.m.InitList {
		for _, u := range r.Uses[t.Name] {
			s := r.ByUse[u]
			if s == nil {
				s = r.ByName[t.Name]
			}
			if s == nil || !slices.Contains(s.Form.Leaves(), p) {
				continue
			}
			if count++; count == 1 {
				continue
			}
			c := *p
			p.Aliases, c.Aliases = nil, nil // whose the other names are cannot be told now
			c.Name = fmt.Sprintf("%s.%d", p.Name, count-1)
			c.Reason = "its own copy by --untie"
			r.Params, r.Named[c.Name] = append(r.Params, &c), &c
			r.ByUse[u] = &Source{s.Form.with(p, leafOf(&c))}
		}
	}
}

// warnLost tells what training loses through how the file was exported.
func (r *Roles) warnLost() {
	var folded []string
	for _, n := range r.m.Nodes {
		if (n.Op == "Conv" || n.Op == "ConvTranspose") &&
			(strings.Contains(n.Rule, "FuseBatchNorm") || strings.Contains(n.Torch.Target, "batch_norm")) {
			folded = append(folded, n.Loc.Node)
		}
	}
	r.warnFolded()
	if len(folded) > 0 {
		r.m.Warn("%d batch normalizations were folded into convolutions when the model was exported (%s): their scales, shifts and running "+
			"statistics are lost, and a training step differs from PyTorch's. %s", len(folded), folded[0], instead)
	}
}

// instead says how to export a model so that all of it can be trained.
const instead = `Export it with: import gtc; gtc.export(model, (example_input,), "model.onnx"); or with ` +
	`torch.onnx.export(model, (example_input,), "model.onnx", dynamo=True, optimize=False)`

// warnFolded names the PyTorch parameters of which only something computed from them is left, such as the product of
// weight_norm: steps on that are others than PyTorch's. A parameter that the record mentions nowhere is tied to another
// one, unless arithmetic is missing that may have had it as an operand.
func (r *Roles) warnFolded() {
	computed := map[string]bool{}
	var of []string
	for _, t := range r.m.InitList {
		s := r.ByName[t.Name]
		if s == nil || !AutoNamed(r.m, t.Name) {
			continue
		}
		from, known := r.m.Torch.Origins(t.Name)
		switch {
		case !known && r.m.Torch.Known() && len(r.m.Torch.From) == 0 && !model.PlainNames.MatchString(t.Name):
			from = r.leftover // an older exporter: it may be computed from any of them
		case s.Constant() || s.Param().Origin != "" || s.Param().Name != t.Name:
			continue
		}
		for _, name := range from {
			computed[name] = true
		}
		if len(from) > 0 {
			of = append(of, fmt.Sprintf("%q", t.Name))
		}
	}
	var lost, dropped []string
	for _, name := range r.lostNames(r.leftover) {
		if computed[name] {
			lost = append(lost, name)
		} else if !r.tellTied(name) {
			dropped = append(dropped, name)
		}
	}
	if len(lost) > 0 {
		r.m.Warn("the exporter kept only what it computed from the PyTorch parameters %s (it is in %s): steps on that differ "+
			"from PyTorch's. %s", strings.Join(lost, ", "), strings.Join(of, ", "), instead)
	}
	if len(dropped) > 0 && r.gone() {
		r.m.Warn("the file has no tensor of the PyTorch parameters %s: they are tied to others, or the exporter left out a product with ones or a "+
			"sum with zeros, which is then not trained. %s", strings.Join(dropped, ", "), instead)
	}
}

// tellTied notes, with the parameter that PyTorch's parameter called name is the same tensor as, that it is: a node made in
// the module of name reads it under its other name. It reports whether there is one.
func (r *Roles) tellTied(name string) bool {
	module := name[:max(strings.LastIndexByte(name, '.'), 0)]
	for _, t := range r.m.InitList {
		for _, u := range r.Uses[t.Name] {
			s := r.ByUse[u]
			if s == nil {
				s = r.ByName[t.Name]
			}
			if s == nil || s.Constant() || module == "" || u.Node.Module != module {
				continue
			}
			p := s.Param()
			if own := p.Name[:max(strings.LastIndexByte(p.Name, '.'), 0)]; own != module && r.m.Torch.Kinds[p.Name] == "PARAMETER" {
				p.Reason += fmt.Sprintf("; %q is the same tensor", name)
				p.Aliases = append(p.Aliases, name)
				return true
			}
		}
	}
	return false
}

// FrozenBy begins the reason of a parameter that the user wants to stay as it is.
const FrozenBy = "frozen by --freeze "
