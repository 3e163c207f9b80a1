package topo

import "github.com/gtc-compiler/gtc/distributed/mesh"

// Volume is how many bytes each of n ranks sends in a collective of kind on a tensor of whole bytes (before it is split or
// after it is joined) by the algorithms that send the fewest: of an all_reduce 2(n-1)/n of the tensor, of a reduce_scatter,
// all_gather or all_to_all (n-1)/n (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009), of a send all.
// Published formulas count so. What a message costs, for which small ones take other ways, is Link.Cost.
func Volume(kind mesh.Collective, n, whole int) float64 {
	part := float64(whole) * float64(n-1) / float64(n)
	switch kind {
	case mesh.AllReduce:
		return 2 * part
	case mesh.ReduceScatter, mesh.AllGather, mesh.AllToAll:
		return part
	case mesh.Send:
		return float64(whole)
	}
	return 0
}
