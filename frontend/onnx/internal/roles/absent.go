package roles

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
)

// keepAbsent makes buffers of constants without contents: the program holds them like weights, and a checkpoint fills
// them. What the user should know of roles and ties that were decided without contents is told.
func (r *Roles) keepAbsent() {
	count := 0
	for _, t := range r.m.InitList {
		if t.Absent {
			count++
		}
	}
	if count == 0 {
		return
	}
	for _, p := range r.Params {
		if p.Absent && p.Role == RoleConstant {
			p.Role, p.Reason = RoleBuffer, p.Reason+"; its contents are absent, so it is kept as a buffer that a checkpoint fills"
		}
	}
	r.m.Warn("the contents of %d of %d initializers are absent (--abstract-weights): their roles are decided by names and uses, and "+
		"copies are tied only where the exporter's record tells (see --train, --freeze and --tie); the programs start from a checkpoint only",
		count, len(r.m.InitList))
}

// alike reports whether t may be one of several equal tensors that an exporter merged: all its elements are equal, as
// far as they are known.
func alike(t *model.Tensor) (bool, error) {
	if t.Absent {
		return true, nil
	}
	return uniform(t)
}

// foldedTranspose reports whether the exporter's record alone tells that t, whose contents are absent, is the transpose of
// p, which it was folded from.
func (r *Roles) foldedTranspose(t *model.Tensor, p *Parameter) bool {
	d, pd := t.Type.Dims, p.Type.Dims
	return t.Absent && len(r.m.Torch.From[t.Name]) == 1 && numberedRE.ReplaceAllString(t.Name, "") == "t" && len(d) == 2 &&
		slices.Equal(d, []int{pd[len(pd)-1], pd[0]}) && len(pd) == 2
}
