package layers

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// ofOwnBatch reports whether mean and variance (biased) are those of each channel of x, computed in the graph: a batch normalisation
// without running statistics (track_running_stats=False), as exporters spell it. As one op it treats ranks, micro-batches and a short
// batch as all others do.
func ofOwnBatch(x, mean, variance *ir.Value) bool {
	if y, dim := averaged(mean); y == nil || !channels(y, x, dim) {
		return false
	}
	square, dim := averaged(variance)
	if square == nil || square.Op == nil || square.Op.Def != ops.MulDef || square.Op.In[0] != square.Op.In[1] {
		return false
	}
	d := square.Op.In[0].Op
	if d == nil || d.Def != ops.SubDef || !channels(d.In[0], x, dim) {
		return false
	}
	centre := d.In[1]
	for centre.Op != nil && centre.Op.Def == ops.ExpandDef {
		centre = centre.Op.In[0]
	}
	y, dim := averaged(centre)
	return y == d.In[0] && channels(y, x, dim)
}

// averaged is the value of which v is the mean over all dims but one, and which that is; nil when it is none.
func averaged(v *ir.Value) (of *ir.Value, dim int) {
	for v.Op != nil && v.Op.Def == ops.ReshapeDef {
		v = v.Op.In[0]
	}
	if v.Op == nil || v.Op.Def != ops.MulDef && v.Op.Def != ops.DivDef {
		return nil, 0
	}
	c, ok := ops.Uniform(v.Op.In[1])
	sum := v.Op.In[0].Op
	if !ok || sum == nil || sum.Def != ops.ReduceSumDef {
		return nil, 0
	}
	x, over := sum.In[0], sum.Attrs.(ops.ReduceAttrs).Dims
	dim = slices.IndexFunc(ops.AllDims(x), func(d int) bool { return !slices.Contains(over, d) })
	if dim < 0 || len(over) != len(x.Type.Dims)-1 {
		return nil, 0
	}
	n := float64(x.Type.Elems() / max(x.Type.Dims[dim], 1))
	if v.Op.Def == ops.DivDef {
		c = 1 / c
	}
	if math.Abs(c*n-1) > 1e-6 { // 1/n in f32
		return nil, 0
	}
	return x, dim
}

// channels reports whether dim of y are the channels of x, dim 1 of it: y is x, or x with its other dims merged and put elsewhere.
func channels(y, x *ir.Value, dim int) bool {
	if y == x {
		return dim == 1
	}
	if y.Op == nil || y.Op.Def != ops.TransposeDef {
		return false
	}
	dim = y.Op.Attrs.(ops.TransposeAttrs).Perm[dim]
	y = y.Op.In[0]
	if y.Op != nil && y.Op.Def == ops.ReshapeDef && y != x {
		if d := y.Type.Dims; len(d) < 2 || !slices.Equal(d[:2], x.Type.Dims[:2]) {
			return false
		}
		y = y.Op.In[0]
	}
	return y == x && dim == 1
}
