package data

import (
	"fmt"
	"math/bits"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
// number generators, OOPSLA 2014): a bijection of 64 bits in which every input bit
// changes every output bit with probability close to one half.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hash mixes a seed with counters: the counter-based generator behind every random
// choice of this package. It has no state, so no choice depends on another.
func hash(seed uint64, counters ...uint64) uint64 {
	h := mix(seed)
	for _, c := range counters {
		h = mix(h ^ c)
	}
	return h
}

// drawSalt keeps the draws of Random apart from the keys of the permutations.
const drawSalt = 0x6a09e667f3bcc909

// rounds of the Feistel network. Four make a pseudorandom permutation of large blocks
// (Luby, Rackoff 1988); small blocks take more, and a round costs about a nanosecond.
const rounds = 12

// Perm is a pseudorandom permutation of 0..n-1 that is computed, not stored: an
// unbalanced Feistel network over the smallest power of two >= n, walked along its
// cycles until it lands below n (Black, Rogaway: Ciphers with arbitrary finite domains,
// CT-RSA 2002), which takes two steps at most on average.
type Perm struct {
	n           uint64
	left, right int // bits of the two halves
	key         [rounds]uint64
}

// Order is the permutation of n samples in an epoch.
func Order(seed uint64, epoch, n int64) Perm {
	width := bits.Len64(uint64(max(n-1, 0)))
	p := Perm{n: uint64(n), left: width / 2, right: width - width/2}
	for i := range p.key {
		p.key[i] = hash(seed, uint64(epoch), uint64(i))
	}
	return p
}

// At is the sample at position i, 0 <= i < n.
func (p *Perm) At(i int64) int64 {
	x := uint64(i)
	for {
		l, r := x>>p.right, x&(1<<p.right-1)
		for k := 0; k < rounds; k += 2 {
			l ^= mix(r^p.key[k]) & (1<<p.left - 1)
			r ^= mix(l^p.key[k+1]) & (1<<p.right - 1)
		}
		x = l<<p.right | r
		if x < p.n {
			return int64(x)
		}
	}
}

// Sampler says which samples make up each global step. It is a function of its fields,
// the step and the place in the batch, without state.
//
// A step belongs to epoch step/Steps(). The positions of an epoch are cut into batches;
// a last batch that is not full is padded with samples that do not count, or dropped.
// With Random, every place of every batch draws a sample of its own, with replacement.
type Sampler struct {
	Samples  int64  // how many there are to choose from
	PerEpoch int64  // how many make an epoch; 0 stands for Samples
	Batch    int    // samples in a global batch, over all ranks and micro-batches
	Seed     uint64 // of the order
	Shuffle  bool   // a new permutation each epoch; else 0, 1, 2, ...
	Random   bool   // draw with replacement
	DropLast bool   // leave out a last batch that is not full
}

// Check says what is wrong with the fields.
func (s *Sampler) Check() error {
	switch {
	case s.Samples <= 0:
		return fmt.Errorf("the data set has no samples")
	case s.Batch <= 0:
		return fmt.Errorf("a global batch must have at least 1 sample, not %d", s.Batch)
	case s.Steps() == 0:
		return fmt.Errorf("%s cannot fill one global batch of %d, and a batch that is not full is left out (--drop-last)", printable.Count(s.epoch(), "sample"), s.Batch)
	}
	return nil
}

func (s *Sampler) epoch() int64 {
	if s.PerEpoch > 0 {
		return s.PerEpoch
	}
	return s.Samples
}

// Steps is the number of global steps in an epoch.
func (s *Sampler) Steps() int64 {
	n, b := s.epoch(), int64(s.Batch)
	if s.DropLast {
		return n / b
	}
	return (n + b - 1) / b
}

// Unseen is how many samples of an epoch no step reads: those of a last batch that is left out. Draws with replacement leave
// out none by rule.
func (s *Sampler) Unseen() int64 {
	if s.Random || !s.DropLast {
		return 0
	}
	return s.epoch() % int64(s.Batch)
}

// Epoch is the epoch of a global step, from 0.
func (s *Sampler) Epoch(step int64) int64 { return step / s.Steps() }

// Valid is how many samples of a global step count.
func (s *Sampler) Valid(step int64) int {
	if s.Random {
		return s.Batch
	}
	return int(min(int64(s.Batch), s.epoch()-step%s.Steps()*int64(s.Batch)))
}

// At is the sample at place i of global step step, 0 <= i < Batch, and whether it counts.
// A padding place repeats a sample of its batch, so that its numbers are ordinary, and so is what it is to the others: losses that
// compare samples divide by how many there are of a class.
func (s *Sampler) At(step int64, i int) (sample int64, counts bool) {
	if s.Random {
		// The high word of hash * n is uniform in [0, n) but for a bias of n / 2^64.
		hi, _ := bits.Mul64(hash(s.Seed^drawSalt, uint64(step), uint64(i)), uint64(s.Samples))
		return int64(hi), true
	}
	first := step % s.Steps() * int64(s.Batch)
	pos := first + int64(i)
	if counts = pos < s.Samples; !counts {
		pos = first + int64(i)%(s.Samples-first)
	}
	if s.Shuffle {
		p := Order(s.Seed, s.Epoch(step), s.Samples)
		pos = p.At(pos)
	}
	return pos, counts
}
