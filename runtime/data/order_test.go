package data

import (
	"math"
	"testing"
)

func TestOrderIsPermutation(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 4, 5, 7, 8, 9, 31, 100, 1000, 4096, 65537} {
		for epoch := range int64(3) {
			p := Order(7, epoch, n)
			seen := make([]bool, n)
			for i := range n {
				v := p.At(i)
				if v < 0 || v >= n || seen[v] {
					t.Fatalf("n=%d epoch=%d: position %d gives %d again or out of range", n, epoch, i, v)
				}
				seen[v] = true
			}
		}
	}
}

// The order must not change from one version to the next: a resumed run depends on it.
func TestOrderIsFixed(t *testing.T) {
	p := Order(42, 3, 10)
	var got [10]int64
	for i := range got {
		got[i] = p.At(int64(i))
	}
	if want := [10]int64{7, 6, 8, 5, 2, 0, 1, 4, 9, 3}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	s := Sampler{Samples: 1000, Batch: 4, Seed: 1, Random: true}
	var draws [4]int64
	for i := range draws {
		draws[i], _ = s.At(5, i)
	}
	if want := [4]int64{184, 58, 314, 229}; draws != want {
		t.Errorf("got %v, want %v", draws, want)
	}
}

// Over many seeds and epochs each sample is equally likely at each position, also where
// blocks are tiny, and neighbours in the order are unrelated (chi-square, about 6 sigma).
func TestOrderIsUniform(t *testing.T) {
	for _, n := range []int64{3, 6, 10, 33} {
		const trials = 6000
		count := make([]float64, n*n)
		follows := make([]float64, n)
		for k := range int64(trials) {
			p := Order(uint64(k/10), k%10, n)
			prev := p.At(n - 1)
			for i := range n {
				v := p.At(i)
				count[i*n+v]++
				follows[(v-prev+n)%n]++
				prev = v
			}
		}
		check := func(what string, c []float64, expect float64) {
			x := 0.0
			for _, v := range c {
				x += (v - expect) * (v - expect) / expect
			}
			if df := float64(len(c) - 1); x > df+6*math.Sqrt(2*df)+10 {
				t.Errorf("n=%d: %s: chi-square %.1f of %v degrees", n, what, x, df)
			}
		}
		check("positions", count, trials/float64(n))
		check("neighbours", follows[1:], trials*float64(n)/float64(n-1))
	}
}

func TestSamplerEpochs(t *testing.T) {
	for _, drop := range []bool{false, true} {
		for _, n := range []int64{1, 7, 8, 9, 20} {
			s := Sampler{Samples: n, Batch: 4, Seed: 3, Shuffle: true, DropLast: drop}
			if err := s.Check(); err != nil {
				if !drop || n >= 4 {
					t.Error(err)
				}
				continue
			}
			for epoch := range int64(3) {
				seen := map[int64]int{}
				for step := epoch * s.Steps(); step < (epoch+1)*s.Steps(); step++ {
					if s.Epoch(step) != epoch {
						t.Errorf("step %d is in epoch %d, want %d", step, s.Epoch(step), epoch)
					}
					valid, real := 0, map[int64]bool{}
					for i := range s.Batch {
						v, counts := s.At(step, i)
						if real[v] = real[v] || counts; !real[v] {
							t.Errorf("sample %d fills step %d, which has none like it", v, step)
						}
						if v < 0 || v >= n {
							t.Errorf("sample %d of %d", v, n)
						}
						if counts {
							valid++
							seen[v]++
						}
					}
					if valid != s.Valid(step) {
						t.Errorf("%d samples of step %d count, Valid says %d", valid, step, s.Valid(step))
					}
				}
				want := n
				if drop {
					want = n / 4 * 4
				}
				if int64(len(seen)) != want {
					t.Errorf("n=%d drop=%v: %d samples in epoch %d, want %d", n, drop, len(seen), epoch, want)
				}
				for v, c := range seen {
					if c != 1 {
						t.Errorf("sample %d occurs %d times", v, c)
					}
				}
			}
		}
	}
}

func TestRandomDraws(t *testing.T) {
	s := Sampler{Samples: 50, PerEpoch: 10, Batch: 8, Seed: 9, Random: true}
	if s.Steps() != 2 || s.Epoch(5) != 2 {
		t.Errorf("steps %d, epoch of step 5 %d", s.Steps(), s.Epoch(5))
	}
	count := make([]int, 50)
	for step := range int64(2000) {
		for i := range s.Batch {
			v, counts := s.At(step, i)
			if !counts {
				t.Fatal("a random draw does not count")
			}
			count[v]++
		}
	}
	for v, c := range count {
		if c < 220 || c > 420 { // 320 expected, sigma 18
			t.Errorf("window %d drawn %d times, 320 expected", v, c)
		}
	}
}

func BenchmarkOrder(b *testing.B) {
	s := Sampler{Samples: 1_000_003, Batch: 32, Seed: 1, Shuffle: true}
	for i := range b.N {
		s.At(int64(i), i&31)
	}
}
