package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// roleFlag is --train or --freeze: they share one list, so that their order counts.
type roleFlag struct {
	rules *[]onnx.RoleRule
	train bool
}

// Set appends a glob.
func (f *roleFlag) Set(glob string) error {
	*f.rules = append(*f.rules, onnx.RoleRule{Train: f.train, Glob: glob})
	return nil
}

// Type is what the help calls the value when the usage text does not.
func (f *roleFlag) Type() string { return "GLOB" }

// String lists the globs of this flag; it is empty for none.
func (f *roleFlag) String() string { return strings.Join(f.GetSlice(), " ") }

// GetSlice lists the globs of this flag.
func (f *roleFlag) GetSlice() []string {
	var out []string
	if f.rules != nil {
		for _, r := range *f.rules {
			if r.Train == f.train {
				out = append(out, r.Glob)
			}
		}
	}
	return out
}

// Append is Set, for pflag.SliceValue.
func (f *roleFlag) Append(glob string) error { return f.Set(glob) }

// Replace puts other globs in the place of this flag's.
func (f *roleFlag) Replace(globs []string) error {
	kept := (*f.rules)[:0:0]
	for _, r := range *f.rules {
		if r.Train != f.train {
			kept = append(kept, r)
		}
	}
	*f.rules = kept
	for _, g := range globs {
		if err := f.Set(g); err != nil {
			return err
		}
	}
	return nil
}

// loraKeys are the settings of --lora.
var loraKeys = []string{"rank", "alpha", "target", "seed"}

// loraWords joins what follows --lora as words of their own, --lora rank=8 target='*.q_proj.weight', to one value.
func loraWords(args []string) []string {
	var out []string
	open := -1 // index in out of the value that words belong to
	for i, a := range args {
		setting := false
		for _, k := range loraKeys {
			setting = setting || strings.HasPrefix(a, k+"=")
		}
		switch {
		case a == "--":
			return append(out, args[i:]...)
		case open >= 0 && setting:
			out[open] += "," + a
			continue
		case strings.HasPrefix(a, "--lora="):
			open = len(out)
		case i > 0 && args[i-1] == "--lora" && setting:
			open = len(out)
		case a != "--lora":
			open = -1
		}
		out = append(out, a)
	}
	return out
}

// adapters reads --lora.
func (m *modelFlags) adapters() error {
	l := &m.opt.Pass.LoRA
	*l = pass.LoRA{}
	for _, value := range m.lora {
		for _, item := range strings.Split(value, ",") {
			key, text, ok := strings.Cut(item, "=")
			var err error
			switch {
			case !ok && key != "" && len(l.Targets) > 0: // target=a,b
				l.Targets = append(l.Targets, key)
			case !ok || text == "":
				err = strconv.ErrSyntax
			case key == "rank":
				l.Rank, err = strconv.Atoi(text)
			case key == "alpha":
				if l.Alpha, err = strconv.ParseFloat(text, 64); err == nil && (!(l.Alpha > 0) || math.IsInf(l.Alpha, 0)) {
					return fmt.Errorf("--lora: alpha must be a finite number above 0, not %s (adapters are scaled by alpha/rank)", text)
				}
			case key == "seed":
				l.Seed, err = strconv.ParseUint(text, 10, 64)
			case key == "target":
				l.Targets = append(l.Targets, text)
			default:
				err = strconv.ErrSyntax
			}
			if err != nil {
				return fmt.Errorf("--lora must be like rank=N,target=GLOB, with alpha=X and seed=N if wanted, not %q", value)
			}
		}
	}
	if len(m.lora) == 0 {
		return nil
	}
	switch {
	case l.Rank == 0 && !strings.Contains(strings.Join(m.lora, ","), "rank="):
		l.Rank = 8 // as in peft
	case l.Rank < 1:
		return fmt.Errorf("--lora: rank must be at least 1")
	}
	if len(l.Targets) == 0 {
		return fmt.Errorf("--lora: say which weights get adapters, such as target='*.q_proj.weight'; gtc inspect lists them")
	}
	return nil
}

// zeros notes the hyperparameters that are zero because the user says so.
func (m *modelFlags) zeros() {
	o := &m.opt.Pass.Optimizer
	o.Zero = nil
	for _, f := range []struct {
		name  string
		given bool
		v     float64
	}{
		{"beta1", m.betas != "" || m.set.Changed("beta1"), o.Beta1}, {"beta2", m.betas != "" || m.set.Changed("beta2"), o.Beta2},
		{"eps", m.set.Changed("eps"), o.Eps}, {"alpha", m.set.Changed("alpha"), o.Alpha},
	} {
		if f.given && f.v == 0 {
			o.Zero = append(o.Zero, f.name)
		}
	}
}
