package fuse

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
)

// Limits of merging groups that read one value: elements of the value, and how far apart the groups may be, in ops, so that
// nothing is kept for long that was made for the earlier one.
const (
	siblingElems = 1 << 10
	siblingReach = 48
)

// siblings merges groups that do not feed one another but read the same large value, where they fit one iteration space: the
// gradients of a norm's input, weight and bias all read the gradient of its output, which then travels from memory once. On
// the CPU the caches see to that; GPUs have none of that size.
func (fu *fuser) siblings() {
	if !fu.c.Traits().JoinReaders {
		return
	}
	readers := map[*ir.Value][]*node{}
	var values []*ir.Value
	for _, n := range fu.all {
		if n.into != nil || n.space == nil || n.alone {
			continue
		}
		for v := range externals(n.ops) {
			if v.Type.Elems() >= siblingElems {
				if readers[v] == nil {
					values = append(values, v)
				}
				readers[v] = append(readers[v], n)
			}
		}
	}
	first := func(v *ir.Value) int { return fu.first(readers[v][0].find()) }
	slices.SortFunc(values, func(a, b *ir.Value) int {
		if d := first(a) - first(b); d != 0 {
			return d
		}
		return fu.number(a) - fu.number(b)
	})
	for _, v := range values {
		fu.joinReaders(v, readers[v])
	}
}

// number orders values: parameters as they are declared, then by the op that makes them.
func (fu *fuser) number(v *ir.Value) int {
	if v.Op != nil {
		return len(fu.f.Params) + fu.pos[v.Op]*16 + v.Index // ops have fewer results
	}
	return slices.Index(fu.f.Params, v)
}

// joinReaders merges those of v's readers that are near each other.
func (fu *fuser) joinReaders(v *ir.Value, nodes []*node) {
	slices.SortFunc(nodes, func(a, b *node) int { return fu.first(a.find()) - fu.first(b.find()) })
	for i, n := range nodes {
		for _, s := range nodes[:i] {
			s, n := s.find(), n.find()
			if s == n || fu.first(n)-fu.last(s) > siblingReach || fu.depends(n, s, false) || fu.depends(s, n, false) || !fu.alike(s, n) {
				continue
			}
			if fu.merge(s, n) == "" {
				fu.c.Remark(n.ops[0].Out[0], "is computed with %%%s: both read %%%s", s.ops[0].Out[0].Name, v.Name)
				break
			}
		}
	}
}

// alike reports whether two groups have as many points: another form of loop would serve neither.
func (fu *fuser) alike(s, n *node) bool {
	return points(s.space) == points(n.space)
}

func points(s *group.Space) int {
	n := 1
	for _, d := range s.Dims {
		n *= d
	}
	return n
}

// early reports whether a group comes before all others, whatever reads it: casts of parameters, which a GPU does in one launch
// when they follow each other. Their results are needed until the backward anyway.
func (fu *fuser) early(n *node) bool {
	return fu.c.Traits().MultiTensor && len(n.ops) == 1 && n.ops[0].Move() == ir.Casts && n.ops[0].In[0].Op == nil && n.ops[0].In[0].Role == ir.Param
}
