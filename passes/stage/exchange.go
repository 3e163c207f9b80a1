package stage

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// get has the stage get v, a sum over micro-batches or a parameter, from another.
func (m *stepMaker) get(v *ir.Value, from int) {
	m.from[v] = append(m.from[v], from)
	other := m.u.each[from]
	other.sends[v] = append(other.sends[v], m.stage)
}

// sendAll sends sums and parameters, all of which are there when the step begins, in the order of the program.
func (m *stepMaker) sendAll() {
	k := m.u.k
	for _, v := range slices.SortedFunc(maps.Keys(m.sends), k.program) {
		x, reason := m.at[v], "parameter for stage %d"
		if b := m.u.border[v]; b != nil {
			x, reason = m.sum(b), "gradient of a weight that stage %d has, too"
		} else if x == nil {
			x = m.param(v)
		}
		slices.Sort(m.sends[v])
		for _, to := range m.sends[v] {
			m.send(x, v, to, abi.AtStep.Of(v.Name), fmt.Sprintf(reason, to))
		}
	}
}

// receiveAll receives them, in the same order, so that the queue between two stages gives each what it waits for.
func (m *stepMaker) receiveAll() {
	for _, v := range slices.SortedFunc(maps.Keys(m.from), m.u.k.program) {
		slices.Sort(m.from[v])
		m.got[v] = map[int]*ir.Value{}
		for _, s := range m.from[v] {
			if m.u.border[v] == nil {
				m.at[v] = m.receive(v, s, abi.AtStep.Of(v.Name), fmt.Sprintf("parameter of stage %d", s))
				continue
			}
			x := m.receive(v, s, abi.AtStep.Of(v.Name), fmt.Sprintf("gradient of a weight that stage %d has, too", s))
			m.got[v][s] = m.b.Rename(x, fmt.Sprintf("%s.%d", v.Name, s))
		}
	}
}

// exchange gives all stages the shared scalars: each fills in its own, zeros are elsewhere, and the sum has all.
func (m *stepMaker) exchange() {
	if len(m.u.shared) == 0 {
		return
	}
	m.b.Loc = m.c.Loc(locOf(m.u.shared[0]))
	var parts []*ir.Value
	zeros := 0
	flush := func() {
		if zeros > 0 {
			parts = append(parts, m.b.Rename(ops.Zeros(m.b, ir.T(dtype.F64, zeros)), "others"))
		}
		zeros = 0
	}
	for _, v := range m.u.shared {
		if m.u.owners[v][0] != m.stage {
			zeros++
			continue
		}
		flush()
		x := ops.Reshape(m.b, ops.Cast(m.b, m.at[v], dtype.F64), []int{1})
		parts = append(parts, m.b.Rename(x, v.Name+".own"))
	}
	flush()
	all := parts[0]
	if len(parts) > 1 {
		all = ops.Concat(m.b, 0, parts...)
	}
	all = ops.AllReduce(m.b, axis, "sum", m.b.Rename(all, "stages.own"))[0]
	m.b.Rename(all, "stages.all")
	all.Op.Why = "scalars of the whole step that single stages have: the loss, its count, squares of gradients"
	for i, v := range m.u.shared {
		if m.want[v] { // its own, too: an all_reduce that one stage does not read would be dropped there
			x := ops.Reshape(m.b, ops.SliceDim(m.b, all, 0, i, 1), v.Type.Dims)
			m.at[v] = m.b.Rename(ops.Cast(m.b, x, v.Type.DType), v.Name)
			m.at[v].Sharding = v.Sharding
		}
	}
}
