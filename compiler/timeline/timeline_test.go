package timeline

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/distributed/topo"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

func draw(t *testing.T, name string, stages, micros int, c [3]float64) *Drawing {
	t.Helper()
	tab, err := schedule.Make(name, stages, 0, micros)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(tab, schedule.Uniform(tab.Parts(), c[0], c[1], c[2], 0), "")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTerminal compares with pictures drawn by hand.
func TestTerminal(t *testing.T) {
	for _, c := range []struct {
		name  string
		width int
		want  string
	}{
		{"1f1b", 200, `1f1b: 2 stages, 2 micro-batches; time 9, bubble 33.3 %
stage 0 F0 F1 ······B0─── ···B1───   slots 2
stage 1 ···F0 B0─── F1 B1─── ······  slots 1
`},
		{"zb-h1", 200, `zb-h1: 2 stages, 2 micro-batches; time 7, bubble 14.3 %
stage 0 F0 F1 ···B0 W0 B1 W1   slots 2
stage 1 ···F0 B0 F1 B1 W0 W1   slots 2
`},
		{"interleaved", 200, `interleaved: 2 stages of 2 chunks, 2 micro-batches; time 15, bubble 20.0 %
stage 0 F0.0 F0.1 F1.0 F1.1 ··········B1.0───── ·····B1.1───── B0.0───── B0.1─────   slots 4
stage 1 ·····F0.0 F0.1 F1.0 B1.0───── F1.1 B1.1───── B0.0───── B0.1───── ··········  slots 3
`},
		{"gpipe", 40, `gpipe: 2 stages, 2 micro-batches; time 9, bubble 33.3 %
stage 0 F0F1······B0─ B1─   slots 2
stage 1 ··F0F1B0─ B1─ ····  slots 2
`},
	} {
		var b bytes.Buffer
		draw(t, c.name, 2, 2, [3]float64{1, 1, 1}).Terminal(&b, c.width, false)
		if b.String() != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, b.String(), c.want)
		}
	}
}

// TestPictures: any schedule and costs fit their width, and the SVG is XML with a bar for each action.
func TestPictures(t *testing.T) {
	for _, name := range schedule.Names() {
		for _, c := range [][3]float64{{1, 1, 1}, {1, 1.7, 0.01}, {0, 0, 0}, {1e-9, 3e-9, 0}, {0, 1, 0}} {
			d := draw(t, name, 3, 12, c)
			for _, colour := range []bool{false, true} {
				var b bytes.Buffer
				d.Terminal(&b, 100, colour)
				lines := strings.Split(strings.TrimSpace(b.String()), "\n")
				if len(lines) != 4 || strings.Contains(b.String(), "\x1b") != colour {
					t.Errorf("%s %v: %d lines, colour %v: %q", name, c, len(lines), colour, b.String())
				}
				for _, l := range lines[1:] {
					if n := len([]rune(l)); n > 100 && !colour {
						t.Errorf("%s %v: a line of %d columns", name, c, n)
					}
				}
			}
			var b bytes.Buffer
			if err := d.SVG(&b); err != nil {
				t.Fatal(err)
			}
			dec, bars := xml.NewDecoder(&b), 0
			for {
				tok, err := dec.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s %v: %v", name, c, err)
				}
				if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "g" {
					bars++
				}
			}
			want := 0
			for i := range d.Table.Stages {
				want += len(d.Table.Rank(i))
			}
			if bars != want {
				t.Errorf("%s: %d bars, want %d", name, bars, want)
			}
		}
	}
}

// plan is a folder's manifest for two stages, two data-parallel ranks each.
func plan(t *testing.T) *abi.Manifest {
	t.Helper()
	tab, err := schedule.Make("1f1b", 2, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	m := &abi.Manifest{Mesh: []abi.Axis{{Name: "pp", Size: 2}, {Name: "dp", Size: 2}}, Ranks: 4, RankProgram: []int{0, 0, 1, 1}, Options: map[string]string{},
		Train: abi.Train{Microbatches: 2}}
	for i := range 2 {
		p := abi.Program{Funcs: []abi.Func{{Name: "fwd.0", Flops: 1e6}, {Name: "bwd.0", Flops: 2e6}, {Name: "step", Flops: 5e9}}}
		for _, a := range tab.Rank(i) {
			p.Actions = append(p.Actions, abi.Action{Func: map[schedule.Kind]string{schedule.F: "fwd.0", schedule.B: "bwd.0"}[a.Kind], Micro: a.Micro, Slot: a.Slot})
		}
		p.Actions = append(p.Actions, abi.Action{Func: "step"})
		m.Programs = append(m.Programs, p)
	}
	m.Programs[0].Collectives = []abi.Collective{{Func: "fwd.0", Kind: "send", Axis: "pp", Bytes: 1000}, {Func: "step", Kind: "all_reduce", Axis: "dp", Bytes: 1 << 20}}
	m.Programs[1].Collectives = []abi.Collective{{Func: "bwd.0", Kind: "reduce_scatter", Axis: "dp", Bytes: 500}}
	return m
}

// TestFolder: times of a folder, worked out by hand for 1 GFLOP/s, 1 us and 1 GB/s.
func TestFolder(t *testing.T) {
	top, err := topo.Parse("1us/1GB")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Plan(plan(t), Machine{Topology: top, Flops: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	// 2 ms a backward of the second stage, and 1 us + 0.5 us for its reduce_scatter of 1000 bytes; a message takes 2 us.
	last := d.Line.Ranks[1]
	if got, want := last[1].End-last[1].Start, 2+1.5e-3; math.Abs(got-want) > 1e-9 {
		t.Errorf("a backward of the second stage takes %g ms, want %g", got, want)
	}
	if got, want := last[0].Start, 1+2e-3; math.Abs(got-want) > 1e-9 {
		t.Errorf("the second stage begins at %g ms, want %g", got, want)
	}
	m := plan(t)
	m.Programs[1].Actions = m.Programs[1].Actions[1:]
	if _, err := Plan(m, Machine{Flops: 1e9}); err == nil {
		t.Error("a folder without an action was drawn")
	}
	for name, edit := range map[string]func(*abi.Manifest){
		"no programs of ranks": func(m *abi.Manifest) { m.RankProgram = nil },
		"a program too many":   func(m *abi.Manifest) { m.RankProgram[2] = len(m.Programs) },
		"a negative program":   func(m *abi.Manifest) { m.RankProgram[0] = -1 },
		"ranks without end":    func(m *abi.Manifest) { m.Ranks = 1 << 40 },
		"stages without end":   func(m *abi.Manifest) { m.Mesh[0].Size = 1 << 60 },
		"no stages":            func(m *abi.Manifest) { m.Mesh[0].Size = -2 },
	} {
		m := plan(t)
		edit(m)
		if _, err := Plan(m, Machine{Flops: 1e9}); err == nil || !strings.Contains(err.Error(), "gtc verify checks a folder") {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.Mesh[0].Name = "tp"
	if _, err := Plan(m, Machine{Flops: 1e9}); err == nil || !strings.Contains(err.Error(), "without --pp") {
		t.Errorf("without a pipeline: %v", err)
	}
}
