// Package batches trains eighty small models over two epochs whose last batch is short, with each number of samples from one to
// the whole batch, in several layouts, and holds losses, running statistics and weights to what PyTorch makes of the same samples
// in float64. A model in which samples meet otherwise than in sums leaves such a batch out: it is then held to PyTorch without that batch.
//
// tests/torch/short_batches.py makes models and references. All is interpreted; tests/faults has real processes. GTC_TEST_BATCHES selects
// models by the beginning of their names.
package batches

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/passes/pass"
)

// model is one of short_batches.zip.
type model struct {
	Name, Loss, Optimizer string
	Batch                 int
	LR                    float64
	Couples               bool // samples meet in it: a short batch may be left out, and the batch need not be split over time
	Ranks                 bool // there are references of ranks that take statistics of their own
	Total                 bool // its loss is a sum over samples, of which an evaluation tells the mean over whole batches
	Sync                  bool // it takes statistics of the batch, which are of all ranks with --sync-bn
}

// layout is a way to split the work.
type layout struct {
	name                string
	dp, pp, micro, zero int
}

var layouts = []layout{
	{name: "one rank", dp: 1, pp: 1, micro: 1},
	{name: "dp 2", dp: 2, pp: 1, micro: 1},
	{name: "dp 3", dp: 3, pp: 1, micro: 1},
	{name: "dp 4", dp: 4, pp: 1, micro: 1},
	{name: "dp 2 zero 2", dp: 2, pp: 1, micro: 1, zero: 2},
	{name: "dp 2 zero 3", dp: 2, pp: 1, micro: 1, zero: 3},
	{name: "microbatches 2", dp: 1, pp: 1, micro: 2},
	{name: "dp 2 microbatches 2", dp: 2, pp: 1, micro: 2},
	{name: "pp 2", dp: 1, pp: 2, micro: 2},
	{name: "dp 2 pp 2", dp: 2, pp: 2, micro: 2},
}

var scratch string // holds the files of the archive

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "gtc-batches-*"); err == nil {
		err = unpack(filepath.Join("testdata", "short_batches.zip"), scratch)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// unpack writes the files of an archive, which has no folders.
func unpack(archive, dir string) error {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer r.Close()
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			return err
		}
		text, err := io.ReadAll(in)
		in.Close()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.Name)), text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func models(t *testing.T) []model {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(scratch, "models.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []model
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 60 {
		t.Fatalf("the archive holds %d models, 60 at least are wanted", len(list))
	}
	return list
}

// TestShortBatches trains each model in each layout that divides its batch, with every size of the last batch.
func TestShortBatches(t *testing.T) {
	for _, m := range models(t) {
		if !strings.HasPrefix(m.Name, os.Getenv("GTC_TEST_BATCHES")) {
			continue
		}
		for _, r := range rowsOf(m) {
			t.Run(r.name(), func(t *testing.T) {
				t.Parallel()
				if err := r.train(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestDrops: what is listed is there.
func TestDrops(t *testing.T) {
	all := models(t)
	for _, name := range drops {
		if !slices.ContainsFunc(all, func(m model) bool { return m.Name == name }) {
			t.Errorf("there is no model %q", name)
		}
	}
}

// row is a model in a layout.
type row struct {
	model
	layout
	sync bool // --sync-bn
}

func (r row) name() string {
	s := r.model.Name + "/" + r.layout.name
	if r.sync {
		s += " sync-bn"
	}
	return s
}

// rowsOf are the layouts that m is tried in. Statistics of the batch are of all samples on one rank and with --sync-bn; of ranks and
// micro-batches that take their own, each has two samples at least.
func rowsOf(m model) []row {
	var list []row
	for _, l := range layouts {
		if m.Batch%(l.dp*l.micro) != 0 || m.Couples && l.micro > 1 {
			continue
		}
		parts, stats := l.dp*l.micro, m.Ranks || m.Sync
		if !stats || parts == 1 || m.Ranks && m.Batch >= 2*parts {
			list = append(list, row{model: m, layout: l})
		}
		if stats && parts > 1 {
			list = append(list, row{model: m, layout: l, sync: true})
		}
	}
	return list
}

// reference is where of the archive the right values for a last batch of rest samples are.
func (r row) reference(rest int, dropped bool) string {
	ranks := ""
	if parts := r.dp * r.micro; r.Ranks && parts > 1 && !r.sync {
		ranks = fmt.Sprintf("ranks/%d/", parts)
	}
	switch {
	case dropped:
		return ranks + "drop"
	case ranks != "":
		return fmt.Sprintf("%s%d", ranks, rest)
	}
	return fmt.Sprintf("keep/%d", rest)
}

// rule is the optimizer of short_batches.py.
func (m model) rule() pass.Optimizer {
	o := pass.Optimizer{Name: m.Optimizer, LR: m.LR}
	switch m.Optimizer {
	case "momentum":
		o.Name, o.Momentum = "sgd", 0.9
	case "adamw":
		o.WeightDecay = 0.1
	}
	return o
}

// options are those of the compilation.
func (r row) options() pass.Options {
	return pass.Options{Loss: r.Loss, IgnoreIndex: -100, Optimizer: r.rule(), DP: r.dp, PP: r.pp, Microbatches: r.micro, Zero: r.zero, SyncBN: r.sync}
}
