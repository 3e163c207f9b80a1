package spmd

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// The ways to lay a value out otherwise.
type moveKind uint8

const (
	reduce   moveKind = iota // a partial sum becomes whole: all_reduce
	scatter                  // a partial sum becomes parts: reduce_scatter
	take                     // of a whole each takes its part: shard_slice
	exchange                 // parts of one dim become parts of another: all_to_all
	gather                   // parts become a whole: all_gather
)

// move is one step from a layout to another, over one axis.
type move struct {
	kind moveKind
	axis string
	dim  int // that is split (scatter, take, exchange) or joined (gather)
	join int // exchange: the dim that is joined
}

// route is the way from one layout of a value to another with the fewest bytes on the wire: parts are taken first,
// since they make all that follows smaller; a partial sum that is wanted in parts is scattered, not summed up and cut;
// a split that goes to another dim is exchanged; and what is gathered is gathered last. Where several dims must be
// gathered, all orders are tried. Sums over time come before those over ranks, so that ranks add up what was accumulated.
//
// Splits that neither layout has are not used, though they could save bytes: an all_reduce whose members have copies on
// another axis could share the work with them, at the price of another message.
func route(m mesh.Mesh, from, to mesh.Sharding, dims int) []move {
	w := &way{m: m, to: to, partial: slices.Clone(from.Partial)}
	for d := range dims {
		w.dims = append(w.dims, slices.Clone(from.Axes(d)))
	}
	w.run()
	return w.moves
}

// way is a route as far as it has come.
type way struct {
	m       mesh.Mesh
	to      mesh.Sharding
	dims    [][]string
	partial []string
	moves   []move
}

// run goes on to the end.
func (w *way) run() {
	for w.take() || w.reduceTime() || w.scatter() || w.exchange() || w.reduce() || w.gather() {
	}
}

// next is the axis by which dim d is to be split further; "" when it is as wanted, or must be joined first.
func (w *way) next(d int) string {
	have, want := w.dims[d], w.to.Axes(d)
	if len(have) >= len(want) || !slices.Equal(have, want[:len(have)]) {
		return ""
	}
	return want[len(have)]
}

func (w *way) split(k moveKind, axis string, d int) bool {
	w.dims[d] = append(w.dims[d], axis)
	w.moves = append(w.moves, move{kind: k, axis: axis, dim: d})
	return true
}

func (w *way) take() bool {
	for d := range w.dims {
		a := w.next(d)
		if a != "" && !slices.Contains(w.partial, a) && !slices.ContainsFunc(w.dims, func(axes []string) bool { return slices.Contains(axes, a) }) {
			return w.split(take, a, d)
		}
	}
	return false
}

// surplus lists the axes over which the value is a partial sum and should not be, the last of the mesh first.
func (w *way) surplus() []string {
	var out []string
	for _, a := range slices.Backward(w.partial) {
		if !slices.Contains(w.to.Partial, a) {
			out = append(out, a)
		}
	}
	return out
}

func (w *way) finish(k moveKind, axis string) bool {
	w.partial = slices.DeleteFunc(w.partial, func(a string) bool { return a == axis })
	if k == reduce {
		w.moves = append(w.moves, move{kind: reduce, axis: axis})
	}
	return true
}

func (w *way) reduceTime() bool {
	return slices.Contains(w.surplus(), mesh.TimeAxis) && w.finish(reduce, mesh.TimeAxis)
}

func (w *way) scatter() bool {
	for _, a := range w.surplus() {
		for d := range w.dims {
			if w.next(d) == a {
				return w.finish(scatter, a) && w.split(scatter, a, d)
			}
		}
	}
	return false
}

func (w *way) reduce() bool {
	over := w.surplus()
	return len(over) > 0 && w.finish(reduce, over[0])
}

// last is the innermost axis of dim d if that must go, "" if the dim is as wanted so far.
func (w *way) last(d int) string {
	have, want := w.dims[d], w.to.Axes(d)
	if len(have) == 0 || len(have) <= len(want) && slices.Equal(have, want[:len(have)]) {
		return ""
	}
	return have[len(have)-1]
}

func (w *way) exchange() bool {
	for from := range w.dims {
		a := w.last(from)
		if a == "" || a == mesh.TimeAxis {
			continue
		}
		for to := range w.dims {
			if to != from && w.next(to) == a {
				w.dims[from] = w.dims[from][:len(w.dims[from])-1]
				w.dims[to] = append(w.dims[to], a)
				w.moves = append(w.moves, move{kind: exchange, axis: a, dim: to, join: from})
				return true
			}
		}
	}
	return false
}

func (w *way) gather() bool {
	var best *way
	least := 0.0
	for d := range w.dims {
		a := w.last(d)
		if a == "" {
			continue
		}
		next := &way{m: w.m, to: w.to, partial: slices.Clone(w.partial), moves: slices.Clone(w.moves)}
		for _, axes := range w.dims {
			next.dims = append(next.dims, slices.Clone(axes))
		}
		next.dims[d] = next.dims[d][:len(next.dims[d])-1]
		next.moves = append(next.moves, move{kind: gather, axis: a, dim: d})
		next.run()
		if wire, _ := cost(w.m, next.moves, 1); best == nil || wire < least {
			best, least = next, wire
		}
	}
	if best == nil {
		return false
	}
	*w = *best
	return true
}

// cost is how many bytes a rank sends and receives for moves that begin with bytes on each, and as a smaller concern
// how many moves there are.
func cost(m mesh.Mesh, moves []move, bytes int) (wire float64, steps int) {
	b := float64(bytes)
	for _, v := range moves {
		n := float64(m.Size(v.axis))
		switch v.kind {
		case reduce:
			if v.axis != mesh.TimeAxis { // an accumulator moves nothing
				wire += 2 * (n - 1) / n * b
			}
		case scatter:
			wire += (n - 1) / n * b
			b /= n
		case take:
			b /= n
		case exchange:
			wire += (n - 1) / n * b
		case gather:
			wire += (n - 1) * b
			b *= n
		}
	}
	return wire, len(moves)
}
