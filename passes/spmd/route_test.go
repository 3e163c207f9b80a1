package spmd

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// layouts lists all layouts of a value of two dims over two axes.
func layouts() []mesh.Sharding {
	var out []mesh.Sharding
	const whole, sum = 2, 3 // else the number of a dim
	for a := range 4 {
		for b := range 4 {
			for order := range 2 {
				if order == 1 && (a != b || a >= whole) {
					continue
				}
				s := mesh.Sharding{Dims: make([][]string, 2)}
				put := func(axis string, where int) {
					switch where {
					case whole:
					case sum:
						s.Partial = append(s.Partial, axis)
					default:
						s.Dims[where] = append(s.Dims[where], axis)
					}
				}
				put([]string{"a", "b"}[order], []int{a, b}[order])
				put([]string{"b", "a"}[order], []int{b, a}[order])
				out = append(out, s)
			}
		}
	}
	return out
}

// moves lists all that may be done to a value laid out as s, without splits that to does not have.
func moves(s, to mesh.Sharding) []move {
	var out []move
	var used []string
	for d, axes := range s.Dims {
		used = append(used, axes...)
		if n := len(axes); n > 0 {
			out = append(out, move{kind: gather, axis: axes[n-1], dim: d}, move{kind: exchange, axis: axes[n-1], dim: 1 - d, join: d})
		}
	}
	for _, a := range s.Partial {
		out = append(out, move{kind: reduce, axis: a}, move{kind: scatter, axis: a}, move{kind: scatter, axis: a, dim: 1})
	}
	for _, a := range []string{"a", "b"} {
		if !slices.Contains(used, a) && !slices.Contains(s.Partial, a) {
			out = append(out, move{kind: take, axis: a}, move{kind: take, axis: a, dim: 1})
		}
	}
	return slices.DeleteFunc(out, func(v move) bool {
		return v.kind != reduce && v.kind != gather && !slices.Contains(to.Axes(v.dim), v.axis)
	})
}

// TestRouteIsTheShortest searches all ways from every layout of two axes to every other: none sends fewer bytes.
func TestRouteIsTheShortest(t *testing.T) {
	m := mesh.Mesh{Axes: []mesh.Axis{{Name: "a", Size: 2}, {Name: "b", Size: 4}}}
	const bytes = 1 << 20
	local := func(s mesh.Sharding) int {
		n := bytes
		for _, axes := range s.Dims {
			for _, a := range axes {
				n /= m.Size(a)
			}
		}
		return n
	}
	all := layouts()
	key := func(s mesh.Sharding) string { return fmt.Sprint(s.Dims, s.Partial) }
	pairs := 0
	for _, from := range all {
		for _, to := range all {
			if len(to.Partial) > 0 {
				continue
			}
			best := map[string]float64{key(from): 0}
			for todo := []mesh.Sharding{from}; len(todo) > 0; {
				s := todo[0]
				todo = todo[1:]
				for _, v := range moves(s, to) {
					next := after(s, v)
					wire, _ := cost(m, []move{v}, local(s))
					if old, ok := best[key(next)]; !ok || best[key(s)]+wire < old {
						best[key(next)] = best[key(s)] + wire
						todo = append(todo, next)
					}
				}
			}
			pairs++
			way := route(m, from, to, 2)
			wire, _ := cost(m, way, local(from))
			if want := best[key(to)]; math.Abs(wire-want) > 0.5 {
				t.Errorf("from %s to %s: %v sends %.0f bytes, %.0f are enough", from, to, way, wire, want)
			}
		}
	}
	t.Logf("%d pairs of layouts", pairs)
}
