// Package faults holds the program gtc to the right values of small models on which it was once wrong. Each
// part of the compiler has a file of rows here. A row is tried in several layouts: interpreted where it is a check, in
// real processes where weights are wanted. GTC_LONG=1 runs every check in real processes, too, and on
// `--target cuda --arch host`.
//
// GTC_TEST_FAULT selects rows by the beginning of their names.
package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// comparison is a model that gtc check compares with its reference: `gtc check FILE.onnx --reference FILE.npz FLAGS`.
type comparison struct {
	file      string   // of ../shared/faults or testdata, without .onnx
	reference string   // another file's, without .npz; "" is file's own
	flags     []string // of every layout
	layouts   []string // flags of each layout, one string each; nil is everyLayout
	processes []string // those of layouts that run as real processes by default, too
	says      []string // words that the output must hold in each layout
	refused   string   // words of the error, where a refusal is right; "" is a check that passes
}

// training is a run of real processes: `gtc compile FILE.onnx FLAGS`, `gtc run --data DATA RUN`, `gtc export`. verify
// looks at the outcome.
type training struct {
	name    string   // of the test; "" is file
	file    string   // of ../shared/faults, without .onnx
	data    string   // without .npz; "" is file
	flags   []string // of gtc compile, in every layout
	run     []string // of gtc run
	layouts []string // flags of gtc compile of each layout, one string each
	long    []string // more layouts, with GTC_LONG=1
	fails   int      // the exit code of gtc run that is right; verify then gets no weights
	verify  func(t *testing.T, o *outcome)
}

// everyLayout are the layouts that a comparison is tried in: one rank, and what splits samples, time and layers.
var everyLayout = []string{"", "--dp 2", "--microbatches 2", "--dp 2 --microbatches 2", "--pp 2 --microbatches 2"}

// comparisons and trainings are all rows, a list for each part.
var (
	comparisons = slices.Concat(normComparisons, emptyComparisons, shortComparisons, lossComparisons, gatherComparisons, turnedComparisons, fileComparisons)
	trainings   = slices.Concat(normTrainings, shortTrainings, lossTrainings, gatherTrainings, turnedTrainings, fileTrainings, unevenTrainings)
)

// folder holds the models.
const folder = "../../../shared/faults"

var scratch string // removed at the end

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "gtc-faults-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

var gtcOnce = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(scratch, "gtc")
	text, err := exec.Command("go", "build", "-o", bin, "../../cmd/gtc").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, text)
	}
	return bin, err
})

// gtc runs the program, and gives its exit code, what it printed and what it said on the side, together.
func gtc(t *testing.T, args ...string) (int, string) {
	t.Helper()
	bin, err := gtcOnce()
	if err != nil {
		t.Fatalf("cmd/gtc does not build: %v", err)
	}
	c := exec.Command(bin, args...)
	text, err := c.CombinedOutput()
	if c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(text)
}

// input is a file of testdata or of the folder; the test is skipped where there is none.
func input(t *testing.T, name string) string {
	t.Helper()
	if own := filepath.Join("testdata", name); exists(own) {
		return own
	}
	return fixtures.Path(t, "faults/"+name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func chosen(name string) bool { return strings.HasPrefix(name, os.Getenv("GTC_TEST_FAULT")) }

func long() bool { return os.Getenv("GTC_LONG") != "" }

// label names a layout in a test's name.
func label(layout string) string {
	if layout == "" {
		return "one rank"
	}
	return strings.ReplaceAll(strings.TrimPrefix(layout, "--"), " --", " ") // a comma would part paths of --data
}

// TestChecks compares outputs, loss, gradients and curves with the reference's.
func TestChecks(t *testing.T) {
	for _, c := range comparisons {
		layouts := c.layouts
		if layouts == nil {
			layouts = everyLayout
		}
		for _, l := range layouts {
			name := fmt.Sprintf("%s/%s", c.file, label(l))
			if !chosen(c.file) {
				continue
			}
			t.Run(name, func(t *testing.T) { c.try(t, l, "--simulate") })
			if c.refused == "" && (long() || slices.Contains(c.processes, l)) {
				t.Run(name+"/processes", func(t *testing.T) { c.try(t, l, "--threads", "1") })
			}
			if c.refused == "" && long() {
				t.Run(name+"/cuda", func(t *testing.T) { c.try(t, l, "--target", "cuda", "--arch", "host") })
			}
		}
	}
}

// try runs the comparison in one layout.
func (c comparison) try(t *testing.T, layout string, how ...string) {
	t.Parallel()
	reference := c.reference
	if reference == "" {
		reference = c.file
	}
	args := []string{"check", input(t, c.file+".onnx"), "--reference", input(t, reference+".npz")}
	args = slices.Concat(args, c.flags, strings.Fields(layout), how)
	code, text := gtc(t, args...)
	switch {
	case c.refused != "" && (code != 2 || !strings.Contains(text, c.refused)):
		t.Errorf("gtc %s: want a refusal with %q\ncode %d\n%s", strings.Join(args, " "), c.refused, code, text)
	case c.refused == "" && code != 0:
		t.Errorf("gtc %s: code %d\n%s", strings.Join(args, " "), code, text)
	}
	for _, words := range c.says {
		if !strings.Contains(text, words) {
			t.Errorf("gtc %s does not say %q\n%s", strings.Join(args, " "), words, text)
		}
	}
}

// TestTrainings trains as real processes and looks at what came out.
func TestTrainings(t *testing.T) {
	for _, r := range trainings {
		if r.name == "" {
			r.name = r.file
		}
		if r.data == "" {
			r.data = r.file
		}
		if !chosen(r.name) {
			continue
		}
		layouts := r.layouts
		if long() {
			layouts = slices.Concat(layouts, r.long)
		}
		for _, l := range layouts {
			t.Run(fmt.Sprintf("%s/%s", r.name, label(l)), func(t *testing.T) { r.try(t, l) })
		}
	}
}

// try compiles, trains and exports in one layout.
func (r training) try(t *testing.T, layout string) {
	dir := filepath.Join(t.TempDir(), "out")
	args := slices.Concat([]string{"compile", input(t, r.file+".onnx"), "-o", dir, "--threads", "1"}, r.flags, strings.Fields(layout))
	code, text := gtc(t, args...)
	if code != 0 {
		t.Fatalf("gtc %s: code %d\n%s", strings.Join(args, " "), code, text)
	}
	o := &outcome{compiled: text}
	args = slices.Concat([]string{"run", dir, "--data", input(t, r.data+".npz"), "--json"}, r.run)
	code, o.ran = gtc(t, args...)
	if code != r.fails {
		t.Fatalf("gtc %s: code %d, want %d\n%s", strings.Join(args, " "), code, r.fails, o.ran)
	}
	if r.fails == 0 {
		o.weights = exported(t, dir)
	}
	r.verify(t, o)
}
