// Package cudatest runs kernels of the CUDA target inside tests: on this processor, with all checks of kernels/cuda/standin.
package cudatest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/standin"
)

// Case is a plan to run on buffers.
type Case struct {
	Name    string
	Plan    *cuda.Plan
	Buffers [][]byte      // by pointer number; nil is a null pointer. Kernels change them in place
	Spans   []Span        // parts of buffer 0 outside of which kernels must not touch it; nil: they may everywhere
	Types   []dtype.DType // of the buffers' elements, as far as they are of one type; for Keep alone
	Results []Typed       // what kernels write in buffers of several types; for Keep alone
	Status  int64         // set by RunAll: what kernels left in Status, math.MaxInt64 when no row was refused
	Err     error         // set by RunAll: a fault that checks found, or a crash
}

// Span is the bytes of a buffer from From to To.
type Span struct{ From, To int }

// Fast compiles kernels optimised and without checks when it is set in the environment, to compare times or compilers.
const Fast = "GTC_CUDATEST_FAST"

// Run runs a plan's kernels once on the buffers, by pointer number, which it changes in place, and gives what is in Status
// afterwards. A fault fails the test. The call's workspace is there, full of NaNs; a Table's offsets are relative to the
// first buffer.
func Run(t testing.TB, plan *cuda.Plan, buffers ...[]byte) int64 {
	t.Helper()
	c := &Case{Name: "plan", Plan: plan, Buffers: buffers}
	RunAll(t, []*Case{c})
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	return c.Status
}

// RunAll compiles the kernels of all cases together, equal ones once, and runs each case. Where the kernels do not compile,
// the test fails; where there is no C++ compiler, it is skipped.
func RunAll(t testing.TB, cases []*Case) {
	t.Helper()
	if _, err := standin.Compiler(); err != nil {
		t.Skip(err)
	}
	text, names := Source(cases)
	start := before(cases)
	ctx := context.Background()
	image, err := standin.ImageFile(ctx, text, standin.Options{Checked: os.Getenv(Fast) == ""})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := standin.Runner(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{dir: t.TempDir(), image: image, runner: runner, cases: cases}
	for from := 0; from < len(cases); {
		from, err = r.start(ctx, from, names)
		if err != nil {
			t.Fatal(err)
		}
	}
	keep(t, cases, names, start)
	if os.Getenv(Profile) != "" {
		logProfile(t, image, r.accesses)
	}
}

// named matches the word that stands for a kernel's name in its text.
var named = regexp.MustCompile(`\bNAME\b`)

// Source is one CUDA text with every kernel of the cases, and the name there of each case's kernels.
func Source(cases []*Case) (string, [][]string) {
	var kernels, includes []string
	names := make([][]string, len(cases))
	known := map[string]string{}
	for i, c := range cases {
		for _, k := range c.Plan.Kernels {
			name, ok := known[k.Text]
			if !ok {
				name = fmt.Sprintf("%s_%d", k.Name, len(known))
				known[k.Text] = name
				kernels = append(kernels, named.ReplaceAllString(k.Text, name))
			}
			names[i] = append(names[i], name)
			for _, h := range k.Include {
				if !slices.Contains(includes, h) {
					includes = append(includes, h)
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString("#include \"gtc.cuh\"\n")
	for _, h := range includes {
		fmt.Fprintf(&b, "#include %q\n", h)
	}
	b.WriteString(strings.Join(kernels, "\n") + "\n")
	return b.String(), names
}

// run is one use of the runner.
type run struct {
	dir, image, runner string
	cases              []*Case
	accesses           []access // that were counted
}

// start runs the cases from number from on and gives the number of the next one, after one that crashed.
func (r *run) start(ctx context.Context, from int, names [][]string) (int, error) {
	var jobs bytes.Buffer
	for i := from; i < len(r.cases); i++ {
		if err := r.describe(&jobs, i, names[i]); err != nil {
			return 0, err
		}
	}
	file := filepath.Join(r.dir, "jobs")
	if err := os.WriteFile(file, jobs.Bytes(), 0o666); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.runner, r.image, file)
	var errText bytes.Buffer
	cmd.Stderr = &errText
	out, err := cmd.Output()
	at, ended := from-1, false
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		word, rest, _ := strings.Cut(s.Text(), " ")
		switch word {
		case "begin":
			at, _ = strconv.Atoi(rest)
		case "fault":
			r.cases[at].Err = fmt.Errorf("%s: %s", r.cases[at].Name, standin.Lines(rest, r.image))
		case "profile":
			if a, ok := parseAccess(rest); ok {
				r.accesses = append(r.accesses, a)
			}
		case "end":
			ended = true
		}
	}
	if !ended && at < from {
		return 0, fmt.Errorf("running the kernels: %v\n%s", err, errText.Bytes())
	}
	if !ended && r.cases[at].Err == nil {
		r.cases[at].Err = fmt.Errorf("%s: crashes: %v: %s", r.cases[at].Name, err, bytes.TrimSpace(errText.Bytes()))
	}
	for i := from; i <= at; i++ {
		if r.cases[i].Err == nil {
			r.cases[i].Err = r.collect(i)
		}
	}
	return at + 1, nil
}

// describe writes the lines of a case, and its buffers to files.
func (r *run) describe(jobs *bytes.Buffer, i int, names []string) error {
	c := r.cases[i]
	fmt.Fprintf(jobs, "case %d\n", i)
	memory := map[int]int{} // the runner's number of a pointer or of special memory
	add := func(arg int, name string, data []byte) error {
		n := len(memory)
		memory[arg] = n
		file := r.file(i, n)
		fmt.Fprintf(jobs, "buffer %s %d %s\n", name, len(data), file)
		return os.WriteFile(file, data, 0o666)
	}
	for k, b := range c.Buffers {
		if b != nil {
			if err := add(k, fmt.Sprintf("pointer-%d", k), b); err != nil {
				return err
			}
		}
	}
	if err := add(cuda.Status, "status", binary.LittleEndian.AppendUint64(nil, math.MaxInt64)); err != nil {
		return err
	}
	if err := add(cuda.Workspace, "workspace", bytes.Repeat([]byte{0xff}, c.Plan.Workspace)); err != nil {
		return err
	}
	for _, s := range merge(c.Spans) {
		fmt.Fprintf(jobs, "span value-at-%d %d %d\n", s.From, s.From, s.To)
	}
	for n, k := range c.Plan.Kernels {
		var table []byte
		for _, x := range k.Table {
			table = binary.LittleEndian.AppendUint64(table, x)
		}
		if err := add(-1000-n, fmt.Sprintf("table-%d", n), table); err != nil {
			return err
		}
	}
	for n, k := range c.Plan.Kernels {
		fmt.Fprintf(jobs, "launch %s %d %d %d %d %d %d %d", names[n], k.Grid[0], k.Grid[1], k.Grid[2], k.Block[0], k.Block[1], k.Block[2], k.Shared)
		for _, a := range k.Args {
			arg := a.Arg
			switch arg {
			case cuda.Table:
				arg = -1000 - n
			case cuda.Base:
				arg = 0
			}
			if at, ok := memory[arg]; ok {
				fmt.Fprintf(jobs, " %d+%d", at, a.Offset)
			} else if arg == cuda.Nil || arg >= 0 && arg < len(c.Buffers) {
				fmt.Fprint(jobs, " nil")
			} else {
				return fmt.Errorf("%s: kernel %s has argument %d, and there are %d buffers", c.Name, k.Name, arg, len(c.Buffers))
			}
		}
		fmt.Fprintln(jobs)
	}
	for n := range len(memory) - 1 - len(c.Plan.Kernels) {
		fmt.Fprintf(jobs, "write %d %s\n", n, r.file(i, n))
	}
	return nil
}

// merge joins spans that overlap or touch.
func merge(spans []Span) []Span {
	var out []Span
	for _, s := range slices.SortedFunc(slices.Values(spans), func(a, b Span) int { return a.From - b.From }) {
		if n := len(out); n > 0 && s.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, s.To)
		} else if s.From < s.To {
			out = append(out, s)
		}
	}
	return out
}

func (r *run) file(i, n int) string { return filepath.Join(r.dir, fmt.Sprintf("%d.%d", i, n)) }

// collect reads what a case has made of its buffers.
func (r *run) collect(i int) error {
	c, n := r.cases[i], 0
	for _, b := range c.Buffers {
		if b == nil {
			continue
		}
		data, err := os.ReadFile(r.file(i, n))
		if err != nil {
			return err
		}
		copy(b, data)
		n++
	}
	data, err := os.ReadFile(r.file(i, n))
	if err != nil {
		return err
	}
	c.Status = int64(binary.LittleEndian.Uint64(data))
	return nil
}
