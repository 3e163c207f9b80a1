// Package factor holds the einsum-like dimension rules of ops: which loop of an op each
// dimension of each operand and result is. One rule per op drives sharding propagation, the
// partitioner and FLOP counts. The idea is that of Shardy's op sharding rules and of
// PyTorch DTensor's einsum strategies. It knows nothing of ops.
package factor

import "fmt"

// Kind says what splitting a factor does to the results.
type Kind uint8

// The kinds of factor.
const (
	// Free: split operands give split results.
	Free Kind = iota
	// Sum, Max, Min, Prod: the factor is reduced; split operands give partial results
	// that combine by that operation.
	Sum
	Max
	Min
	Prod
	// Index: integers of an operand name positions along the factor, or the result counts along it. A part works with the
	// integers less its own beginning, as ir.Rules.Indexed says, and skips those that are not its own: results that do not
	// have the dimension are partial sums.
	Index
	// Blocked: the op needs the dimension whole (softmax's row, conv's window, a cumulative sum).
	Blocked
)

// String names the kind: free, sum, max, min, prod, index, blocked.
func (k Kind) String() string {
	return [...]string{"free", "sum", "max", "min", "prod", "index", "blocked"}[k]
}

// Factor is one loop of an op: its extent and what splitting it means.
type Factor struct {
	Name string
	Size int
	Kind Kind
}

// Dim lists the factors that make up one dimension, the slowest-varying first. A dimension of a
// reshape may hold several (B*S); an empty list is a dimension of size 1 that belongs to no loop.
type Dim []int

// Rule is the whole rule of one op instance.
type Rule struct {
	Factors []Factor
	In, Out [][]Dim // per operand, per dimension
}

// Points is the product of all factor sizes: the op's iteration count.
func (r Rule) Points() int64 {
	n := int64(1)
	for _, f := range r.Factors {
		n *= int64(f.Size)
	}
	return n
}

// IsEmpty reports whether the op declares no rule (everything blocked: replicate to be safe).
func (r Rule) IsEmpty() bool { return r.In == nil && r.Out == nil }

// Parse builds a rule from an einsum-like string, one letter a dimension, such as
// "bmk,bkn->bmn". Sizes come from the operand and result dims; kinds gives the kind of each letter
// that is not Free when it appears in a result and Sum when it does not.
func Parse(spec string, in, out [][]int, kinds map[byte]Kind) (Rule, error) {
	var r Rule
	index := map[byte]int{}
	side, operand, lists := 0, 0, [2][][]int{in, out}
	cur := []Dim{}
	flush := func() error {
		if operand >= len(lists[side]) {
			return fmt.Errorf("factor rule %q names more values than the op has", spec)
		}
		if len(cur) != len(lists[side][operand]) {
			return fmt.Errorf("factor rule %q: value %d has %d dimensions", spec, operand, len(lists[side][operand]))
		}
		if side == 0 {
			r.In = append(r.In, cur)
		} else {
			r.Out = append(r.Out, cur)
		}
		cur, operand = []Dim{}, operand+1
		return nil
	}
	for i := 0; i < len(spec); i++ {
		switch c := spec[i]; c {
		case ',':
			if err := flush(); err != nil {
				return r, err
			}
		case '-':
			if err := flush(); err != nil {
				return r, err
			}
			side, operand, i = 1, 0, i+1
		default:
			if operand >= len(lists[side]) || len(cur) >= len(lists[side][operand]) {
				return r, fmt.Errorf("factor rule %q does not fit value %d", spec, operand)
			}
			id, ok := index[c]
			if !ok {
				id = len(r.Factors)
				index[c] = id
				kind, given := kinds[c]
				if !given && side == 0 {
					kind = Sum // until seen in a result
				}
				r.Factors = append(r.Factors, Factor{string(c), lists[side][operand][len(cur)], kind})
			}
			if _, given := kinds[c]; side == 1 && !given {
				r.Factors[id].Kind = Free
			}
			cur = append(cur, Dim{id})
		}
	}
	return r, flush()
}

// Pointwise is the rule of an op whose operands and results all have the dims of the iteration.
func Pointwise(dims []int, operands, results int) Rule {
	r := Rule{Factors: make([]Factor, len(dims))}
	all := make([]Dim, len(dims))
	for i, n := range dims {
		r.Factors[i] = Factor{string(rune('a' + i)), n, Free}
		all[i] = Dim{i}
	}
	for range operands {
		r.In = append(r.In, all)
	}
	for range results {
		r.Out = append(r.Out, all)
	}
	return r
}

// Reshape is the rule between two shapes of equal element count: runs of dimensions whose products
// agree share compound factors, so that a split of the slowest factor passes through. Of no elements nothing is split.
func Reshape(in, out []int) Rule {
	if rest(in) == 0 {
		return blockedReshape(in, out)
	}
	r := Rule{In: [][]Dim{make([]Dim, len(in))}, Out: [][]Dim{make([]Dim, len(out))}}
	i, j := 0, 0
	for i < len(in) || j < len(out) {
		i0, j0, pi, pj := i, j, 1, 1
		if i < len(in) {
			pi, i = in[i], i+1
		}
		if j < len(out) {
			pj, j = out[j], j+1
		}
		for pi != pj {
			if pi < pj && i < len(in) {
				pi, i = pi*in[i], i+1
			} else if pj < pi && j < len(out) {
				pj, j = pj*out[j], j+1
			} else {
				return blockedReshape(in, out)
			}
		}
		r.segment(in[i0:i], out[j0:j], r.In[0][i0:i], r.Out[0][j0:j])
	}
	return r
}

// segment splits one run of matching dimensions into their common refinement, slowest first.
func (r *Rule) segment(in, out []int, di, do []Dim) {
	a, b := append([]int{}, in...), append([]int{}, out...)
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		if i < len(a) && a[i] == 1 {
			i++
			continue
		}
		if j < len(b) && b[j] == 1 {
			j++
			continue
		}
		if i >= len(a) || j >= len(b) {
			return
		}
		n := min(a[i], b[j])
		kind := Free
		if a[i]%n != 0 || b[j]%n != 0 { // no common refinement below here: keep the rest whole
			n, kind = rest(a[i:]), Blocked
			id := r.add(n, kind)
			for ; i < len(a); i++ {
				di[i] = append(di[i], id)
			}
			for ; j < len(b); j++ {
				do[j] = append(do[j], id)
			}
			return
		}
		id := r.add(n, kind)
		di[i], do[j] = append(di[i], id), append(do[j], id)
		a[i] /= n
		b[j] /= n
	}
}

func rest(a []int) int {
	n := 1
	for _, v := range a {
		n *= v
	}
	return n
}

func (r *Rule) add(size int, kind Kind) int {
	r.Factors = append(r.Factors, Factor{fmt.Sprintf("r%d", len(r.Factors)), size, kind})
	return len(r.Factors) - 1
}

func blockedReshape(in, out []int) Rule {
	r := Rule{In: [][]Dim{make([]Dim, len(in))}, Out: [][]Dim{make([]Dim, len(out))}}
	id := r.add(rest(in), Blocked)
	for i := range in {
		r.In[0][i] = Dim{id}
	}
	for j := range out {
		r.Out[0][j] = Dim{id}
	}
	return r
}
