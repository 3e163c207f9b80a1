package schedule

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// tables gives every schedule for many sizes, more stages than micro-batches among them.
func tables(t *testing.T, visit func(t *testing.T, tab *Table)) {
	for _, name := range Names() {
		for _, stages := range []int{1, 2, 3, 4, 7, 8} {
			for _, micros := range []int{1, 2, 3, 4, 8, 16, 21} {
				for _, chunks := range []int{0, 1, 3} {
					tab, err := Make(name, stages, chunks, micros)
					if refused := chunks > 1 && name != "interleaved" || name == "interleaved" && micros%stages != 0; refused != (err != nil) {
						t.Fatalf("%s, %d stages, %d chunks, %d micro-batches: %v", name, stages, chunks, micros, err)
					}
					if err == nil {
						t.Run(fmt.Sprintf("%s-p%d-v%d-m%d", name, stages, tab.Chunks, micros), func(t *testing.T) { visit(t, tab) })
					}
				}
			}
		}
	}
}

// TestActions: every action once, dependencies in order on each stage, backwards in the order of micro-batches, and no slot
// of two at once.
func TestActions(t *testing.T) {
	tables(t, func(t *testing.T, tab *Table) {
		kinds := []Kind{F, B}
		if tab.Split {
			kinds = append(kinds, W)
		}
		for i := range tab.Stages {
			seen, next := map[Action]bool{}, map[[2]int]int{}
			holds := map[int][2]int{}
			most := 0
			for n, a := range tab.Rank(i) {
				slot, pair := a.Slot, [2]int{a.Chunk, a.Micro}
				a.Slot = 0
				if seen[a] || a.Chunk < 0 || a.Chunk >= tab.Chunks || a.Micro < 0 || a.Micro >= tab.Micros {
					t.Fatalf("stage %d, action %d: %s again, or out of range", i, n, a)
				}
				seen[a] = true
				if key := [2]int{int(a.Kind), a.Chunk}; next[key] != a.Micro {
					t.Errorf("stage %d: %s comes before micro-batch %d", i, a, next[key])
				} else {
					next[key]++
				}
				if a.Kind == F {
					if old, ok := holds[slot]; ok {
						t.Errorf("stage %d: %s takes slot %d of %v", i, a, slot, old)
					}
					holds[slot] = pair
				} else if holds[slot] != pair || !seen[Action{Kind: kinds[0], Chunk: a.Chunk, Micro: a.Micro}] {
					t.Errorf("stage %d: %s in slot %d of %v", i, a, slot, holds[slot])
				}
				most = max(most, len(holds))
				if a.Kind == kinds[len(kinds)-1] {
					delete(holds, slot)
				}
			}
			if len(seen) != len(kinds)*tab.Chunks*tab.Micros || len(holds) != 0 {
				t.Errorf("stage %d: %d actions, %d slots still held", i, len(seen), len(holds))
			}
			if tab.Slots(i) != most {
				t.Errorf("stage %d has %d slots, holds %d at most", i, tab.Slots(i), most)
			}
		}
	})
}

// TestSlots: memory as the papers say.
func TestSlots(t *testing.T) {
	tables(t, func(t *testing.T, tab *Table) {
		p, m, v := tab.Stages, tab.Micros, tab.Chunks
		for i := range p {
			want := 0
			switch tab.Name {
			case "gpipe":
				want = m
			case "1f1b":
				want = min(p-i, m)
			case "zb-h1":
				want = min(p, m)
			case "interleaved":
				want = min(2*(p-1-i)+(v-1)*p+1, m*v)
			case "varuna":
				// Forwards run until the first gradient is back: forwards of the stages behind, backwards of those.
				want = min((p-1-i)*(forwardTime+backwardTime)/forwardTime+1, m)
			}
			if got := tab.Slots(i); got != want {
				t.Errorf("stage %d: %d slots, want %d", i, got, want)
			}
		}
	})
}

func simulate(t *testing.T, tab *Table, c Costs) *Timeline {
	t.Helper()
	line, err := tab.Simulate(c)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// TestBubble: the share of time that stages wait is (p-1)/(vm+p-1); zb-h1's is (p-1)(F+B-W) beside m(F+B+W).
func TestBubble(t *testing.T) {
	tables(t, func(t *testing.T, tab *Table) {
		p, m, v := float64(tab.Stages), float64(tab.Micros), float64(tab.Chunks)
		line := simulate(t, tab, Uniform(tab.Parts(), 1, 1, 1, 0))
		want := (p - 1) / (v*m + p - 1)
		switch {
		case tab.Name == "zb-h1" && m >= p:
			want = (p - 1) / (3*m + p - 1)
		case tab.Name == "zb-h1":
			if line.Bubble > want+1e-12 {
				t.Errorf("bubble %g, 1f1b has %g", line.Bubble, want)
			}
			return
		}
		if math.Abs(line.Bubble-want) > 1e-12 {
			t.Errorf("bubble %g, want %g", line.Bubble, want)
		}
	})
}

// TestDependencies checks a timeline against the definition, with uneven costs and slow messages.
func TestDependencies(t *testing.T) {
	tables(t, func(t *testing.T, tab *Table) {
		c := Uniform(tab.Parts(), 0, 0, 0, 0.3)
		for i := range tab.Parts() {
			c.Forward[i], c.Backward[i], c.Weight[i] = 1+float64(i%3)/4, 1.5+float64(i%2)/3, 0.5+float64(i%5)/7
		}
		line := simulate(t, tab, c)
		type key struct {
			kind        Kind
			part, micro int
		}
		at := map[key]Span{}
		for i, list := range line.Ranks {
			for n, s := range list {
				at[key{s.Kind, tab.Part(i, s.Chunk), s.Micro}] = s
				if n > 0 && s.Start < list[n-1].End {
					t.Errorf("stage %d does %s and %s at once", i, list[n-1], s)
				}
			}
		}
		after := func(a, b key) { // b's result is input of a
			wait := 0.0
			if a.part%tab.Stages != b.part%tab.Stages {
				wait = c.Send
			}
			if first, ok := at[b]; ok && at[a].Start < first.End+wait {
				t.Errorf("%v starts at %g, %v ends at %g", a, at[a].Start, b, first.End)
			}
		}
		for part := range tab.Parts() {
			for m := range tab.Micros {
				after(key{F, part, m}, key{F, part - 1, m})
				after(key{B, part, m}, key{B, part + 1, m})
				after(key{B, part, m}, key{F, part, m})
				if tab.Split {
					after(key{W, part, m}, key{B, part, m})
				}
			}
		}
	})
}

// TestFIFO: between two stages, messages are needed in the order in which they are sent, activations and gradients together:
// one queue for each ordered pair of ranks is enough.
func TestFIFO(t *testing.T) {
	tables(t, func(t *testing.T, tab *Table) {
		type pair struct{ from, to int }
		sent, needed := map[pair][]string{}, map[pair][]string{}
		for i := range tab.Stages {
			for _, a := range tab.Rank(i) {
				part, step := tab.Part(i, a.Chunk), 1
				if a.Kind == W {
					continue
				}
				if a.Kind == B {
					step = -1
				}
				if from := part - step; from >= 0 && from < tab.Parts() {
					p := pair{from % tab.Stages, i}
					needed[p] = append(needed[p], fmt.Sprint(a.Kind, part, a.Micro))
				}
				if to := part + step; to >= 0 && to < tab.Parts() {
					p := pair{i, to % tab.Stages}
					sent[p] = append(sent[p], fmt.Sprint(a.Kind, to, a.Micro))
				}
			}
		}
		for p, list := range needed {
			if fmt.Sprint(sent[p]) != fmt.Sprint(list) {
				t.Errorf("%v: sent in the order %v, needed in the order %v", p, sent[p], list)
			}
		}
	})
}

func TestErrors(t *testing.T) {
	for want, c := range map[string]struct {
		name                   string
		stages, chunks, micros int
	}{
		`there is no schedule "2f2b" of a pipeline`: {"2f2b", 2, 0, 4},
		"each must be at least 1":                   {"1f1b", 0, 0, 4},
		"has one chunk per stage":                   {"1f1b", 2, 2, 4},
		"needs a multiple of 4":                     {"interleaved", 4, 2, 6},
		"their product must be at most":             {"1f1b", 1 << 40, 0, 1 << 40},
	} {
		if _, err := Make(c.name, c.stages, c.chunks, c.micros); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", c, err, want)
		}
	}
	tab, _ := Make("", 2, 0, 4)
	if tab.Name != "1f1b" {
		t.Errorf("the default is %s", tab.Name)
	}
	if _, err := tab.Simulate(Uniform(3, 1, 1, 1, 0)); err == nil {
		t.Error("costs of three parts fit a pipeline of two")
	}
	tab.ranks[1] = []Action{{Kind: B}, {Kind: F}}
	if _, err := tab.Simulate(Uniform(2, 1, 1, 1, 0)); err == nil || !strings.Contains(err.Error(), "stage 0 waits forever before B0.0") {
		t.Errorf("a backward before its forward: %v", err)
	}
}

// Example tables, as in the papers' figures.
func TestFigures(t *testing.T) {
	for name, want := range map[string]string{
		"1f1b":  "F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3",
		"zb-h1": "F0.0 F0.1 B0.0 F0.2 B0.1 W0.0 F0.3 B0.2 W0.1 B0.3 W0.2 W0.3",
	} {
		tab, err := Make(name, 3, 0, 4)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range tab.Rank(1) {
			got = append(got, a.String())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s, second stage of three: %s, want %s", name, s, want)
		}
	}
}
