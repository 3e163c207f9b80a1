package ir

// Beside the arena a program may have host storage, a second space with offsets of its own: memory of the host where the arena is a
// device's, a file where it is the host's. An op that offloads copies a value there, one that fetches copies it back; the value
// between them is a host value, which no kernel can read.

// Transfer is which way an op copies between the arena and host storage.
type Transfer uint8

// The ways.
const (
	NoTransfer Transfer = iota // it does not
	ToHost                     // its operand lies in the arena, its result in host storage
	FromHost                   // its operand lies in host storage, its result in the arena
)

// OnHost reports whether v lies in host storage, where its Offset counts from the start of that; else, if it has a place, in the arena.
func (v *Value) OnHost() bool { return v.Op != nil && v.Op.Def.Rules.Transfer == ToHost }

// Beside reports whether ops of these rules run on a stream of their own, beside the kernels: collectives and transfers.
func (r *Rules) Beside() bool { return r.Collective != "" || r.Transfer != NoTransfer }

// hostSpace is added to offsets in host storage where both spaces are looked at as one: no arena reaches so far.
const hostSpace = 1 << 56

// Place is where v's memory begins, in the arena, or in host storage, behind all that an arena may hold; negative where it has none.
func (v *Value) Place() int {
	if v.Offset >= 0 && v.OnHost() {
		return v.Offset + hostSpace
	}
	return v.Offset
}
