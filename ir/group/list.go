package group

import "github.com/gtc-compiler/gtc/ir"

// Group is one kernel's worth of ops, in program order.
type Group struct {
	ID  int
	Ops []*ir.Op
}

// List gives the groups of f in the order of their first ops. Ops without a group (virtual views, literals)
// are left out.
func List(f *ir.Func) []Group {
	var out []Group
	at := map[int]int{}
	for _, op := range f.Ops {
		if op.Group == 0 {
			continue
		}
		i, seen := at[op.Group]
		if !seen {
			i = len(out)
			at[op.Group] = i
			out = append(out, Group{ID: op.Group})
		}
		out[i].Ops = append(out[i].Ops, op)
	}
	return out
}

// Inputs are the values with storage that the group reads, each once, in order of first use. Aliases and
// views are followed; scalars written into expressions are left out.
func (g Group) Inputs() []*ir.Value {
	var out []*ir.Value
	seen := map[*ir.Value]bool{nil: true}
	for _, op := range g.Ops {
		for _, v := range op.In {
			if v == nil {
				continue
			}
			if _, ok := Scalar(v); ok {
				continue
			}
			src, _, _ := Resolve(v)
			if !seen[src] && (src.Op == nil || src.Op.Group != g.ID) {
				seen[src] = true
				out = append(out, src)
			}
		}
	}
	return out
}

// Outputs finds, for every group of f, the values that something outside it reads: another group, or a
// result of the function.
func Outputs(f *ir.Func) map[int][]*ir.Value {
	need := map[*ir.Value]bool{}
	for _, g := range List(f) {
		for _, v := range g.Inputs() {
			need[v] = true
		}
	}
	for _, r := range f.Results {
		src, _, _ := Resolve(r.Value)
		need[src] = true
	}
	out := map[int][]*ir.Value{}
	for _, op := range f.Ops {
		for _, v := range op.Out {
			if op.Group != 0 && need[v] {
				out[op.Group] = append(out[op.Group], v)
			}
		}
	}
	return out
}
