package ir

import (
	"fmt"
	"strings"
)

// Verify checks every function: names unique, operands defined before use, attributes of the declared
// type, result types equal to what the rules infer, locations present, updates of parameters of equal type; of a function with
// calls, that they do all ops, after what these read, and that what they read is still where it was written.
func (m *Module) Verify() error {
	for _, f := range m.Funcs {
		if err := f.Verify(m); err != nil {
			return err
		}
	}
	return nil
}

// Verify checks one function; m gives the mesh that collectives refer to.
func (f *Func) Verify(m *Module) error {
	defined, names := map[*Value]bool{}, map[string]bool{}
	define := func(v *Value) error {
		if names[v.Name] {
			return fmt.Errorf("@%s: %s is defined twice", f.Name, ref(v))
		}
		names[v.Name], defined[v] = true, true
		return nil
	}
	for i, p := range f.Params {
		if p.Op != nil || p.Index != i {
			return fmt.Errorf("@%s: parameter %s is not number %d", f.Name, ref(p), i)
		}
		if err := define(p); err != nil {
			return err
		}
	}
	for i, op := range f.Ops {
		if err := verifyOp(op, defined); err != nil {
			return fmt.Errorf("@%s: %w\n%s", f.Name, err, f.around(i))
		}
		for k, v := range op.Out {
			if v.Op != op || v.Index != k {
				return fmt.Errorf("@%s: result %s does not point at its op\n%s", f.Name, ref(v), f.around(i))
			}
			if err := define(v); err != nil {
				return fmt.Errorf("%w\n%s", err, f.around(i))
			}
		}
	}
	for _, r := range f.Results {
		if !defined[r.Value] {
			return fmt.Errorf("@%s: result %s is not defined", f.Name, ref(r.Value))
		}
		if r.Value.OnHost() {
			return fmt.Errorf("@%s: result %s lies in host storage, but must lie in the arena", f.Name, ref(r.Value))
		}
		if r.Updates != nil && (!defined[r.Updates] || r.Updates.Op != nil || !r.Updates.Type.Equal(r.Value.Type)) {
			return fmt.Errorf("@%s: %s %s cannot update %s %s", f.Name, ref(r.Value), r.Value.Type, ref(r.Updates), r.Updates.Type)
		}
	}
	if f.Calls != nil {
		return f.verifyCalls()
	}
	return nil
}

func verifyOp(op *Op, defined map[*Value]bool) error {
	for i, v := range op.In {
		if v != nil && !defined[v] {
			return fmt.Errorf("operand %d of %s, %s, is not defined before it", i, op.Def.Name, ref(v))
		}
		if v != nil && v.OnHost() != (op.Def.Rules.Transfer == FromHost) {
			return fmt.Errorf("operand %d of %s, %s, lies in %s", i, op.Def.Name, ref(v), map[bool]string{
				true: "host storage, which only a fetch reads", false: "the arena, but must lie in host storage"}[v.OnHost()])
		}
	}
	if op.Loc.IsZero() {
		return fmt.Errorf("%s has no location", op.Def.Name)
	}
	types, err := op.infer()
	if err != nil {
		return fmt.Errorf("%s: %w", op.Def.Name, err)
	}
	if len(types) != len(op.Out) {
		return fmt.Errorf("%s has %d results, but its rules give %d", op.Def.Name, len(op.Out), len(types))
	}
	for i, t := range types {
		if !t.Equal(op.Out[i].Type) {
			return fmt.Errorf("%s is %s, but the rules of %s give %s", ref(op.Out[i]), op.Out[i].Type, op.Def.Name, t)
		}
	}
	return nil
}

// around prints the ops near number i, the faulty one marked.
func (f *Func) around(i int) string {
	var b strings.Builder
	for j := max(0, i-10); j < min(len(f.Ops), i+11); j++ {
		mark := "  "
		if j == i {
			mark = "> "
		}
		fmt.Fprintf(&b, "%s%s", mark, f.Ops[j])
		if j == i {
			fmt.Fprintf(&b, "  # %s", f.Ops[j].Loc)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
