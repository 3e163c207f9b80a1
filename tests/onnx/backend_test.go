// Package onnx runs every case of the ONNX project's backend test data: through the interpreter, and through generated
// CPU kernels, which are built together in a few compilations.
//
//	go test ./tests/onnx                                  all cases, with a summary under -v
//	go test ./tests/onnx -run 'TestBackend/test_abs$' -v  one case (any pattern): only what it names is built
//	go test ./tests/onnx -update                          rewrites testdata/notyet.tsv
//
// A case is tried with all inputs given at run time, then with integers and bools known when compiling, then with all
// inputs known. It passes when the first of these forms that imports gives the expected outputs in the interpreter and,
// unless nothing was left to compute, in the kernels; the later forms must agree in the interpreter where they import.
// Dropout lets everything through, as in the forward pass that gtc run --dump-forward gives.
//
// testdata/unsupported.tsv lists what gtc leaves out by design, each with one of the reasons in this package.
// testdata/notyet.tsv lists what does not pass yet. Both lists are exact: a listed case that passes is a failure too.
package onnx

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/codegen/codegentest"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
	"github.com/gtc-compiler/gtc/internal/fixtures"
)

var update = flag.Bool("update", false, "rewrite testdata/notyet.tsv")

// packages is how many C files the kernels of all cases are spread over.
const packages = 8

// backendData is the ONNX project's test data below shared.
const backendData = "onnx/backend-test-data.tar.gz"

func TestBackend(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds kernels")
	}
	cases, err := onnxtest.Read(fixtures.Path(t, backendData), wanted(t))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	trials := make([]*trial, len(cases))
	var wait sync.WaitGroup
	turns := make(chan bool, 2)
	for i, c := range cases {
		wait.Add(1)
		go func() {
			defer wait.Done()
			turns <- true
			trials[i] = try(c)
			<-turns
		}()
	}
	wait.Wait()
	interpreted := time.Since(start)
	runKernels(t, trials)
	t.Logf("interpreter %.0f s, kernels %.0f s", interpreted.Seconds(), (time.Since(start) - interpreted).Seconds())
	judge(t, trials)
}

// wanted is the filter of cases that -run asks for.
func wanted(t *testing.T) func(string) bool {
	_, pattern, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	if !ok || pattern == "" {
		return func(string) bool { return true }
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return re.MatchString
}

// runKernels compiles and runs the modules of all trials that the interpreter agrees with.
func runKernels(t *testing.T, trials []*trial) {
	var jobs []*codegentest.Job
	for _, tr := range trials {
		if tr.err == nil {
			jobs = append(jobs, tr.jobs()...)
		}
	}
	if len(jobs) == 0 {
		return
	}
	n := min(packages, (len(jobs)+19)/20)
	dir := t.TempDir()
	if keep := os.Getenv("GTC_KEEP"); keep != "" {
		dir = keep
	}
	if err := codegentest.RunMany(dir, jobs, n, "-O1"); err != nil {
		t.Fatal(err)
	}
	for _, tr := range trials {
		if tr.err == nil {
			tr.check()
		}
	}
}

// judge compares what happened with the lists, and prints the summary.
func judge(t *testing.T, trials []*trial) {
	unsupported, notYet := readList(t, "unsupported.tsv"), readList(t, "notyet.tsv")
	var passed, known, byType, folded []string
	why := map[string]int{}
	var failures []string
	for _, tr := range trials {
		name := tr.c.Name
		reason, out := unsupported[name]
		if tr.err != nil {
			failures = append(failures, name+"\t"+oneLine(tr.err))
		}
		t.Run(name, func(t *testing.T) {
			_, listed := notYet[name]
			switch {
			case out && tr.err == nil:
				t.Errorf("passes: take it off testdata/unsupported.tsv")
			case out && !slices.Contains(reasons, reason):
				t.Errorf("testdata/unsupported.tsv gives a reason that is not in the list: %q", reason)
			case out && listed:
				t.Errorf("is on both lists")
			case out:
				why[reason]++
			case tr.err == nil && listed && !*update:
				t.Errorf("passes: take it off testdata/notyet.tsv (go test ./tests/onnx -update)")
			case tr.err != nil && !listed && !*update:
				t.Error(tr.err)
			case tr.err != nil:
				t.Log(tr.err)
			}
		})
		switch {
		case tr.err != nil:
		case tr.byType:
			byType = append(byType, name)
		case tr.folded:
			folded = append(folded, name)
		case tr.mode > 0:
			known = append(known, name)
		default:
			passed = append(passed, name)
		}
	}
	n := len(passed) + len(known) + len(folded) + len(byType)
	t.Logf("%d of %d cases pass: %d with all inputs at run time, %d with known integers or inputs, %d are computed when compiling, "+
		"%d draw other random numbers and are compared by type", n, len(trials), len(passed), len(known), len(folded), len(byType))
	out := 0
	for _, r := range reasons {
		out += why[r]
		t.Logf("%d unsupported: %s", why[r], r)
	}
	t.Logf("%d unsupported by design, %d fail", out, len(trials)-n-out)
	if file := os.Getenv("GTC_TEST_FAILURES"); file != "" {
		if err := os.WriteFile(file, []byte(strings.Join(failures, "\n")+"\n"), 0o666); err != nil {
			t.Error(err)
		}
	}
	if *update {
		writeNotYet(t, trials, unsupported)
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// readList reads a table of case and reason.
func readList(t *testing.T, name string) map[string]string {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, reason, _ := strings.Cut(strings.TrimSpace(line), "\t"); name != "" && name != "case" {
			list[name] = reason
		}
	}
	return list
}

// writeNotYet lists the cases that fail now, of those that were run, and keeps what was not run.
func writeNotYet(t *testing.T, trials []*trial, unsupported map[string]string) {
	list := readList(t, "notyet.tsv")
	for _, tr := range trials {
		delete(list, tr.c.Name)
		if _, out := unsupported[tr.c.Name]; !out && tr.err != nil {
			list[tr.c.Name] = "interpreter"
			if tr.interpreted {
				list[tr.c.Name] = "kernels"
			}
		}
	}
	lines := []string{"case\tfails in"}
	for name, where := range list {
		lines = append(lines, fmt.Sprintf("%s\t%s", name, where))
	}
	slices.Sort(lines[1:])
	if err := os.WriteFile(filepath.Join("testdata", "notyet.tsv"), []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
}
