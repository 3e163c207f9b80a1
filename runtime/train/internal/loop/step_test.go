package loop

import (
	"testing"

	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/report"
)

// A step in steady state allocates nothing: reading the batch, feeding it, the calls, the collectives, the loss.
func TestAStepAllocatesNothing(t *testing.T) {
	for _, c := range []toy{{dp: 1, micro: 1}, {dp: 1, micro: 2}} {
		m := c
		m.batch, m.dim = 8, 5
		dir, path := m.folder(t, 50)
		p := m.program(t)
		s := &session{env: &surroundings{}, watch: &report.Watcher{}}
		var err error
		if s.cfg, err = parseFlags([]string{"--data", path, "--dir", dir}, nil); err != nil {
			t.Fatal(err)
		}
		if s.Plan, err = program.Read(p, 0); err != nil {
			t.Fatal(err)
		}
		where, end, err := machine.OpenMemory(p, s.Plan, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		if err := s.build(p, where); err != nil {
			t.Fatal(err)
		}
		tr := &trainer{session: s}
		if err := tr.prepare(); err != nil {
			t.Fatal(err)
		}
		tr.loader.Close()
		if tr.loader, err = tr.set.Loader(data.Config{Sampler: tr.sampler, Micro: m.micro}); err != nil {
			t.Fatal(err)
		}
		n := testing.AllocsPerRun(200, func() {
			if err := tr.one(); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.stop.agreed(nil); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%d micro-batches: %v allocations a step", m.micro, n)
		}
		tr.close()
	}
}
