package samples

import (
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// mostTries bounds the ways in which samples may lie that are looked at.
const mostTries = 64

// Search finds how samples may lie in a function.
type Search struct {
	F       *ir.Func
	Inputs  []*ir.Value // those that have dims
	Outputs []*ir.Value
	Fixed   Along // what is given
}

// Apart lists the ways in which no samples meet, only data differ between them, and all outputs have them. complete is
// false where there are too many ways to look at.
func (s *Search) Apart() (ways []Along, complete bool) {
	return s.find(func(t *Trace) bool { return t.PerSample == nil && t.Separate(s.Outputs) && t.Lined(s.Outputs) })
}

// Lined lists the ways in which all outputs have the samples, whatever the model does with them.
func (s *Search) Lined() (ways []Along, complete bool) {
	return s.find(func(t *Trace) bool { return t.Lined(s.Outputs) })
}

// Inside lists the ways that would be Apart if outputs had a dim for samples, which they have inside of one.
func (s *Search) Inside() (ways []Along, complete bool) {
	return s.find(func(t *Trace) bool {
		return t.PerSample == nil && t.Separate(s.Outputs) && !slices.ContainsFunc(s.Outputs, func(v *ir.Value) bool { return !t.at[v].Has() && v.Type.Elems() != 1 })
	})
}

func (s *Search) find(good func(*Trace) bool) (ways []Along, complete bool) {
	tries := 0
	for _, n := range s.sizes() {
		for _, at := range s.ways(n) {
			if tries++; tries > mostTries {
				return ways, false
			}
			if good(TraceOf(s.F, n, at, s.Outputs...)) {
				ways = append(ways, at)
			}
		}
	}
	return ways, true
}

// sizes are the numbers of samples that the first input can have.
func (s *Search) sizes() []int {
	if len(s.Inputs) == 0 {
		return nil
	}
	first := s.Inputs[0]
	var list []int
	seen := map[int]bool{1: true, 0: true}
	for d, n := range first.Type.Dims {
		if at, given := s.Fixed[first]; given && at != d || seen[n] {
			continue
		}
		seen[n] = true
		list = append(list, n)
	}
	return list
}

// ways are all in which each input has n samples along one dim: of n elements, or the leading dim with n times as many.
func (s *Search) ways(n int) []Along {
	list := []Along{{}}
	for i, p := range s.Inputs {
		var next []Along
		for _, at := range list {
			for d, size := range p.Type.Dims {
				if k, given := s.Fixed[p]; given && k != d {
					continue
				}
				if size != n && (d > 0 || i == 0 || size == 0 || size%n != 0) {
					continue
				}
				one := maps.Clone(at)
				one[p] = d
				next = append(next, one)
			}
			if len(next) > mostTries {
				break
			}
		}
		list = next
	}
	return list
}
