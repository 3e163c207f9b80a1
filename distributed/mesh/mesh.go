// Package mesh describes a grid of ranks by named axes, and how a tensor lies on it.
// It is pure data: it knows nothing of ops, devices or communication.
package mesh

import (
	"fmt"
	"slices"
	"strings"
)

// Axis is one named direction of the rank grid, such as dp (data parallel).
type Axis struct {
	Name string `json:"name"` // DataAxis, TensorAxis, PipelineAxis, or TimeAxis
	Size int    `json:"size"` // ranks along it (of TimeAxis: micro-batches), at least 1
}

// Mesh is the grid of ranks, outermost axis first. Rank numbers count row-major.
// TimeAxis is special: it is a loop in time, not a set of ranks.
type Mesh struct{ Axes []Axis }

// The axes of gtc's meshes, by the names that layouts, plans and errors have for them.
const (
	DataAxis     = "dp" // data parallelism: each rank has a part of the batch
	TensorAxis   = "tp" // tensor parallelism: each rank has a part of the weights, and of the work with them
	PipelineAxis = "pp" // each rank has a stage of the model
	// TimeAxis is the pseudo-axis of micro-batches: a value split over it is computed in
	// successive passes by the same rank, a partial sum over it is accumulated.
	TimeAxis = "mb"
)

// Size is the extent of the named axis, 1 when the mesh has no such axis.
func (m Mesh) Size(axis string) int {
	for _, a := range m.Axes {
		if a.Name == axis {
			return a.Size
		}
	}
	return 1
}

// Ranks is the number of processes: the product of all axes but TimeAxis.
func (m Mesh) Ranks() int {
	n := 1
	for _, a := range m.Axes {
		if a.Name != TimeAxis {
			n *= a.Size
		}
	}
	return n
}

// Coord is the position of rank along axis; 0 for an absent axis.
func (m Mesh) Coord(rank int, axis string) int {
	for i := len(m.Axes) - 1; i >= 0; i-- {
		a := m.Axes[i]
		if a.Name == TimeAxis {
			continue
		}
		if a.Name == axis {
			return rank % a.Size
		}
		rank /= a.Size
	}
	return 0
}

// Group lists, in order, the ranks that share all coordinates of rank but the one along axis.
func (m Mesh) Group(rank int, axis string) []int {
	stride := 1
	for i := len(m.Axes) - 1; i >= 0; i-- {
		a := m.Axes[i]
		if a.Name == TimeAxis {
			continue
		}
		if a.Name == axis {
			base := rank - m.Coord(rank, axis)*stride
			out := make([]int, a.Size)
			for j := range out {
				out[j] = base + j*stride
			}
			return out
		}
		stride *= a.Size
	}
	return []int{rank}
}

// String prints the mesh as in the IR text: [dp=2, tp=4].
func (m Mesh) String() string {
	parts := make([]string, len(m.Axes))
	for i, a := range m.Axes {
		parts[i] = fmt.Sprintf("%s=%d", a.Name, a.Size)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// Sharding says how a tensor lies on a mesh: for each dimension the axes that split it,
// outermost first, and the axes over which the value is a partial result still to be combined.
// The zero value is replicated (or not yet decided).
type Sharding struct {
	Dims    [][]string // for each dimension of the tensor the names of the axes that split it; empty where it is whole; may be shorter than the dimensions
	Partial []string   // names of the axes over which the ranks' values must still be combined, such as summed; empty: the value is finished
}

// IsReplicated reports whether every rank holds the whole, finished value.
func (s Sharding) IsReplicated() bool {
	if len(s.Partial) > 0 {
		return false
	}
	for _, d := range s.Dims {
		if len(d) > 0 {
			return false
		}
	}
	return true
}

// Axes lists the axes that split dimension dim; nil when it is whole.
func (s Sharding) Axes(dim int) []string {
	if dim < len(s.Dims) {
		return s.Dims[dim]
	}
	return nil
}

// Equal reports whether two shardings mean the same layout.
func (s Sharding) Equal(o Sharding) bool {
	for d := 0; d < max(len(s.Dims), len(o.Dims)); d++ {
		if !slices.Equal(s.Axes(d), o.Axes(d)) {
			return false
		}
	}
	return slices.Equal(s.Partial, o.Partial)
}

// String prints the sharding as in the IR text: {dp,_} or {_,tp+dp; partial=tp}.
// A replicated one prints as "".
func (s Sharding) String() string {
	if s.IsReplicated() {
		return ""
	}
	parts := make([]string, len(s.Dims))
	for i, d := range s.Dims {
		parts[i] = "_"
		if len(d) > 0 {
			parts[i] = strings.Join(d, "+")
		}
	}
	out := strings.Join(parts, ",")
	if len(s.Partial) > 0 {
		out += "; partial=" + strings.Join(s.Partial, "+")
	}
	return "{" + out + "}"
}

// Local is the part of dims (elements per dimension) that one rank, in one micro-batch, holds.
// It fails when a dimension does not divide.
func (s Sharding) Local(m Mesh, dims []int) ([]int, error) {
	out := slices.Clone(dims)
	for d := range dims {
		for _, a := range s.Axes(d) {
			n := m.Size(a)
			if out[d]%n != 0 {
				return nil, fmt.Errorf("dimension %d of size %d is not divisible by %s=%d", d, out[d], a, n)
			}
			out[d] /= n
		}
	}
	return out, nil
}
