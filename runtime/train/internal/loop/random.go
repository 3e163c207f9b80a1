package loop

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// randomWeights are contents for a parameter or buffer that was compiled without: matrices are uniform with the standard
// deviation 0.02 of GPT-2's initial weights, scales and variances 1, all else 0. They depend on the name alone, so that ranks
// which hold parts of a tensor agree. Types other than f32 are zeros.
func randomWeights(t *abi.Tensor, dims []int) []byte {
	const size = 4
	data := make([]byte, program.Elems(dims)*program.ElemSize(t.DType))
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

// seedNoise sets the state for --seed, where the program draws random numbers. It is saved with the rest, so that a resumed run
// draws on.
func (s *session) seedNoise() error {
	for i := range s.Plan.Prog.Tensors {
		t := &s.Plan.Prog.Tensors[i]
		if t.Name != abi.NoiseSeed || t.Role != abi.RoleState {
			continue
		}
		err := s.m.Fill(t, func(b []byte) error {
			binary.NativeEndian.PutUint64(b, noiseOf(s.cfg.seed))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noiseOf is the state for a seed: 0 for 0, else an odd number below 2^31 (SplitMix64's finaliser).
func noiseOf(seed uint64) uint64 {
	if seed == 0 {
		return 0
	}
	z := seed + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z^z>>31)>>33 | 1
}
