// Package explain tells what became of one value of a compiled program: where it came from, which kernel makes it,
// where it lies in memory, who reads it, and what the passes said of it.
package explain

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Value writes what is known of the value called name (with or without %) in every function of res, which Lower or
// Run made. The error names values that are like it when there is none and no pass spoke of it.
func Value(w io.Writer, res *compiler.Result, name string) error {
	name = strings.TrimPrefix(name, "%")
	if held := holder(res, name); held != "" {
		fmt.Fprintf(w, "%%%s is tied: %%%s holds the same tensor\n", printable.Line(name), printable.Line(held))
		name = held
	}
	makers, err := res.Makers()
	if err != nil {
		return err
	}
	found := false
	programs := res.Context.Programs()
	for stage, c := range programs {
		for _, f := range c.Module.Funcs {
			v := find(f, name)
			if v == nil {
				continue
			}
			found = true
			t := &teller{w: w, f: f, makers: makers}
			if len(programs) > 1 {
				t.stage = fmt.Sprintf(" of stage %d", stage)
			}
			t.tell(v)
		}
	}
	said := false
	for _, r := range res.Context.Remarks {
		if r.Value != name {
			continue
		}
		if !said {
			fmt.Fprintln(w, "what passes said:")
		}
		said = true
		fmt.Fprintf(w, "  %s: it %s\n", r.Pass, r.Text)
	}
	switch {
	case found:
		return nil
	case said:
		fmt.Fprintf(w, "%%%s is not a value of the finished program: a pass replaced or dropped it\n", name)
		return nil
	}
	err = fmt.Errorf("the program has no value %%%s", name)
	if like := similar(res, name); len(like) > 0 {
		err = fmt.Errorf("%w; it has %s", err, strings.Join(like, ", "))
	}
	return compiler.Input(err)
}

// holder is the parameter that holds the tensor which the module also calls name; "" when name is no such second name.
func holder(res *compiler.Result, name string) string {
	for _, p := range res.Parameters {
		if p.Name != name && slices.Contains(p.Aliases, name) {
			return p.Name
		}
	}
	return ""
}

func find(f *ir.Func, name string) *ir.Value {
	if p := f.Param(name); p != nil {
		return p
	}
	for _, op := range f.Ops {
		for _, v := range op.Out {
			if v.Name == name {
				return v
			}
		}
	}
	return nil
}

// similar lists a few values whose names contain name, or that name contains.
func similar(res *compiler.Result, name string) []string {
	var out []string
	low := strings.ToLower(name)
	look := func(name string) {
		n := strings.ToLower(name)
		if len(out) < 8 && len(n) > 1 && (strings.Contains(n, low) || len(n) > 3 && strings.Contains(low, n)) && !slices.Contains(out, "%"+name) {
			out = append(out, "%"+name)
		}
	}
	for _, p := range res.Parameters {
		for _, name := range p.Aliases {
			look(name)
		}
	}
	for _, c := range res.Context.Programs() {
		for _, f := range c.Module.Funcs {
			for _, p := range f.Params {
				look(p.Name)
			}
			for _, op := range f.Ops {
				for _, v := range op.Out {
					look(v.Name)
				}
			}
		}
	}
	return out
}

type teller struct {
	w      io.Writer
	f      *ir.Func
	stage  string // of a pipeline
	makers map[*ir.Value]string
}

func (t *teller) line(name, format string, args ...any) {
	fmt.Fprintf(t.w, "  %-8s %s\n", name, fmt.Sprintf(format, args...))
}

func (t *teller) tell(v *ir.Value) {
	fmt.Fprintf(t.w, "%%%s: %s in @%s%s\n", printable.Line(v.Name), v.Type, t.f.Name, t.stage)
	if v.Op == nil {
		t.line("role", "%s, parameter %d of the function", v.Role, v.Index)
	} else {
		t.line("op", "%s", v.Op)
		t.line("from", "%s", from(v.Op.Loc))
		t.group(v)
	}
	t.buffer(v)
	var readers []string
	for _, op := range t.f.Uses()[v] {
		readers = append(readers, fmt.Sprintf("%%%s (%s)", op.Out[0].Name, op.Def.Name))
	}
	if len(readers) > 12 {
		readers = append(readers[:12], fmt.Sprintf("and %d more", len(readers)-12))
	}
	if len(readers) > 0 {
		t.line("read by", "%s", strings.Join(readers, ", "))
	}
	for _, r := range t.f.Results {
		switch {
		case r.Updates == v:
			t.line("updated", "with %%%s", r.Value.Name)
		case r.Value == v && r.Updates != nil:
			t.line("result", "the new contents of %%%s", r.Updates.Name)
		case r.Value == v:
			t.line("result", "%s of the function", r.Name)
		}
	}
}

// from spells out a location.
func from(l ir.Loc) string {
	var parts []string
	if l.Node != "" {
		parts = append(parts, fmt.Sprintf("node %q", l.Node))
	}
	if l.OpType != "" {
		parts = append(parts, "("+l.OpType+")")
	}
	if l.File != "" {
		parts = append(parts, fmt.Sprintf("at %s:%d", l.File, l.Line))
	}
	if l.Func != "" {
		parts = append(parts, "in "+l.Func)
	}
	if l.Derived != "" {
		parts = append(parts, "made by pass "+l.Derived)
	}
	return strings.Join(parts, " ")
}

func (t *teller) group(v *ir.Value) {
	if v.Op.Group == 0 {
		switch {
		case group.Virtual(v):
			t.line("kernel", "none: it is a view, its readers compute the addresses")
		case group.Impl(v.Op).Kind == kir.Literal:
			t.line("kernel", "none: it is stored with the weights")
		default:
			t.line("kernel", "none: it is written into the expressions of its readers")
		}
		return
	}
	var ops []string
	var made *ir.Value
	for _, op := range t.f.Ops {
		if op.Group != v.Op.Group {
			continue
		}
		for _, o := range op.Out {
			if o != v {
				ops = append(ops, "%"+o.Name)
			}
			if t.makers[o] != "" {
				made = o
			}
		}
	}
	with := "alone"
	if len(ops) > 12 {
		ops = append(ops[:12], fmt.Sprintf("and %d more", len(ops)-12))
	}
	if len(ops) > 0 {
		with = "with " + strings.Join(ops, ", ")
	}
	t.line("group", "%d, %s", v.Op.Group, with)
	if made != nil {
		t.line("kernel", "%s", t.makers[made])
	}
}

func (t *teller) buffer(v *ir.Value) {
	src, _, _ := group.Resolve(v)
	if _, scalar := group.Scalar(v); scalar {
		return
	}
	switch {
	case src != v:
		t.line("buffer", "that of %%%s, which it is a view of", src.Name)
	case v.Offset == ir.NoOffset || v.Op != nil && t.makers[v] == "" && group.Impl(v.Op).Kind != kir.Literal:
		t.line("buffer", "none: it lives in registers of its kernel")
	default:
		t.line("buffer", "bytes %d to %d of the arena (%d bytes)", v.Offset, v.Offset+v.Type.Bytes(), v.Type.Bytes())
	}
}
