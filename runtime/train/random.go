package train

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// randomWeights are contents for a parameter or buffer that was compiled without: matrices are uniform with the standard
// deviation 0.02 of GPT-2's initial weights, scales and variances 1, all else 0. They depend on the name alone, so that ranks
// which hold parts of a tensor agree. Types other than f32 are zeros.
func randomWeights(t *abi.Tensor, dims []int) []byte {
	const size = 4
	data := make([]byte, elems(dims)*elemSizes[t.DType])
	if t.DType != "f32" {
		return data
	}
	fill := float32(0)
	large := slices.DeleteFunc(slices.Clone(dims), func(n int) bool { return n == 1 })
	switch {
	case len(large) >= 2:
		h := fnv.New64a()
		h.Write([]byte(t.Name))
		r := rand.New(rand.NewPCG(h.Sum64(), 0))
		for i := 0; i < len(data); i += size {
			x := (2*r.Float32() - 1) * float32(0.02*math.Sqrt(3))
			binary.LittleEndian.PutUint32(data[i:], math.Float32bits(x))
		}
		return data
	case strings.HasSuffix(t.Name, "weight") || strings.HasSuffix(t.Name, "running_var"):
		fill = 1
	}
	for i := 0; i < len(data); i += size {
		binary.LittleEndian.PutUint32(data[i:], math.Float32bits(fill))
	}
	return data
}
