// Package topo predicts how long collectives take over a link, by the alpha-beta model: a message of b bytes takes
// alpha + b/beta seconds. It is pure data.
//
// # Formulas
//
// For n ranks and b bytes, the whole tensor (Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication
// Operations in MPICH"; Patarasuk and Yuan 2009 for the ring):
//
//	                          ring                        tree (recursive halving or doubling)
//	all_reduce       2(n-1) alpha + 2(n-1)/n b/beta   2 log2(n) alpha + 2(n-1)/n b/beta   or log2(n)(alpha + b/beta)
//	reduce_scatter    (n-1) alpha +  (n-1)/n b/beta     log2(n) alpha +  (n-1)/n b/beta
//	all_gather        as reduce_scatter
//	all_to_all        (n-1) alpha +  (n-1)/n b/beta     log2(n)(alpha + b/2/beta)         (Bruck et al. 1997)
//	broadcast, reduce                                   log2(n)(alpha + b/beta)
//	send, recv        alpha + b/beta
//
// log2(n) is rounded up. The least of a row is the prediction: backends choose by size, too. What is left out: the time of
// the additions, that collectives of several axes share a link, and that they run beside computation.
package topo

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// Link is what ranks talk over.
type Link struct {
	Name   string  `json:"name"`
	Alpha  float64 `json:"alpha"`  // seconds a message
	Beta   float64 `json:"beta"`   // bytes a second, one direction, one rank
	Source string  `json:"source"` // where the figures are from
}

// links are the links that are known by name.
var links = map[string]Link{
	"shm": {Alpha: 5e-6, Beta: 6.5e9,
		Source: "gtc's local backend, two processes on a 2-core virtual machine: all_reduce of 4 bytes 5.7 us, of 4 MiB 0.64 ms (go test ./distributed/comm -bench Processes)"},
	"nvlink": {Alpha: 3.4e-6, Beta: 450e9,
		Source: "NVIDIA H100: 18 links of 25 GB/s each way; latency of NCCL's ring, Simple protocol (NCCL 2.19, tuning.cc)"},
	"pcie": {Alpha: 5.7e-6, Beta: 26e9,
		Source: "PCIe 4.0 x16: 31.5 GB/s less protocol; latency of NCCL's ring, Simple protocol (NCCL 2.19, tuning.cc)"},
	"ib": {Alpha: 14e-6, Beta: 50e9,
		Source: "InfiniBand NDR, 400 Gbit/s a GPU as in DGX H100; latency of NCCL's ring, Simple protocol (NCCL 2.19, tuning.cc)"},
	"ethernet": {Alpha: 30e-6, Beta: 1.25e9, Source: "10 Gbit/s; round trips of 60 us through kernel TCP"},
}

// Topology says which link each mesh axis uses.
type Topology struct {
	Default Link            // of axes that Axis does not name
	Axis    map[string]Link // by axis
}

// Names lists the links that are known by name.
func Names() []string { return slices.Sorted(maps.Keys(links)) }

// Parse reads a topology such as "shm", "nvlink,dp=ib" or "dp=20us/12.5GB": a link for all axes, and links of single axes.
// A link is a name or LATENCY/BYTES a second, the latency with us, ms or s, the bytes with MB, GB or none. "" is shm.
func Parse(text string) (Topology, error) {
	t := Topology{Default: named("shm"), Axis: map[string]Link{}}
	if text == "" {
		return t, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		axis, what, one := strings.Cut(word, "=")
		if !one {
			what = word
		}
		l, err := parseLink(what)
		if err != nil {
			return Topology{}, fmt.Errorf("topology %q: %w", text, err)
		}
		if one {
			t.Axis[axis] = l
		} else {
			t.Default = l
		}
	}
	return t, nil
}

func named(name string) Link {
	l := links[name]
	l.Name = name
	return l
}

func parseLink(text string) (Link, error) {
	if _, ok := links[text]; ok {
		return named(text), nil
	}
	lat, rate, ok := strings.Cut(text, "/")
	alpha, err := number(lat, map[string]float64{"us": 1e-6, "ms": 1e-3, "s": 1})
	beta, err2 := number(rate, map[string]float64{"GB": 1e9, "MB": 1e6, "": 1})
	if !ok || err != nil || err2 != nil || alpha < 0 || beta <= 0 {
		return Link{}, fmt.Errorf("%q is not a link: it must be %s, or LATENCY/BANDWIDTH such as 20us/12.5GB", text, strings.Join(Names(), ", "))
	}
	return Link{Name: text, Alpha: alpha, Beta: beta, Source: "given"}, nil
}

// number reads a number with one of the units.
func number(text string, units map[string]float64) (float64, error) {
	at := strings.TrimRight(text, "usmGB")
	x, err := strconv.ParseFloat(at, 64)
	scale, ok := units[text[len(at):]]
	if err != nil || !ok || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, fmt.Errorf("%q is not a number with a unit", text)
	}
	return x * scale, nil
}

// Link is what the ranks along axis talk over.
func (t Topology) Link(axis string) Link {
	if l, ok := t.Axis[axis]; ok {
		return l
	}
	return t.Default
}

// Cost is the prediction for one collective.
type Cost struct {
	Seconds   float64 `json:"seconds"`
	Sent      int64   `json:"sent"`      // bytes that each rank sends: 2(n-1)/n of the tensor for a ring's all_reduce
	Algorithm string  `json:"algorithm"` // ring, tree or direct
}

// Cost predicts a collective of kind (all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather, scatter,
// send, recv, barrier) among n ranks on a tensor of whole bytes before it is split or after it is joined. One rank alone, and
// shard_slice, cost nothing; what recv waits for is paid by send.
func (l Link) Cost(kind mesh.Collective, n, whole int) Cost {
	if kind == mesh.Send {
		return Cost{Seconds: l.Alpha + float64(whole)/l.Beta, Sent: int64(whole), Algorithm: "direct"}
	}
	if n < 2 || kind == mesh.Recv || kind == mesh.ShardSlice {
		return Cost{}
	}
	b, steps, rounds := float64(whole)/l.Beta, float64(n-1), math.Ceil(math.Log2(float64(n)))
	part := b * steps / float64(n)
	sent := int64(whole) - int64(whole)/int64(n)
	ring := func(seconds float64, sent int64) Cost { return Cost{seconds, sent, "ring"} }
	tree := func(seconds float64, sent int64) Cost { return Cost{seconds, sent, "tree"} }
	switch kind {
	case mesh.AllReduce:
		return least(ring(2*steps*l.Alpha+2*part, 2*sent), tree(2*rounds*l.Alpha+2*part, 2*sent), tree(rounds*(l.Alpha+b), int64(rounds)*int64(whole)))
	case mesh.ReduceScatter, mesh.AllGather:
		return least(ring(steps*l.Alpha+part, sent), tree(rounds*l.Alpha+part, sent))
	case mesh.AllToAll:
		return least(Cost{steps*l.Alpha + part, sent, "direct"}, tree(rounds*(l.Alpha+b/2), int64(rounds)*int64(whole)/2))
	case mesh.Gather, mesh.Scatter:
		return Cost{steps*l.Alpha + part, sent, "direct"}
	case mesh.Barrier:
		return tree(rounds*l.Alpha, 0)
	}
	return tree(rounds*(l.Alpha+b), int64(whole)) // broadcast, reduce
}

// least is the fastest; of equal ones the first.
func least(list ...Cost) Cost {
	return slices.MinFunc(list, func(a, b Cost) int {
		switch {
		case a.Seconds < b.Seconds:
			return -1
		case a.Seconds > b.Seconds:
			return 1
		}
		return 0
	})
}
