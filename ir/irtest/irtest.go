// Package irtest runs golden tests of passes: one txtar file a case, checked against its text and against the
// evaluator.
//
// The comment on top of the file says the point of the case. Its sections:
//
//	-- in --      the module before the pass, in the text form
//	-- opt --     optional lines "key=value" for the pass (see Case.Opt); changes=yes says that this case changes meaning
//	-- out --     the module after it
//	-- remark --  the pass's remarks, one a line
//	-- err --     the error the pass must give; then out is absent
//
// go test -update rewrites out, remark and err. Unless the pass changes meaning, in and out are run on random
// inputs and must agree, so that an update cannot bless a wrong golden.
package irtest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Update reports whether the test was asked to rewrite its golden files.
func Update() bool { return *update }

// Case is one golden file.
type Case struct {
	Name   string // base name of the file, without .txtar
	Module *ir.Module
	Opt    map[string]string // the lines of -- opt --
}

// Options say how the cases of one pass are judged.
type Options struct {
	// Changes says that the pass changes what functions compute (autodiff, trainstep): in and out are not compared.
	Changes bool
	// Check, when set, replaces the comparison of in with out.
	Check func(t *testing.T, c *Case, before, after *ir.Module)
}

// Run runs apply over every file that matches glob, such as "testdata/*.txtar". apply changes c.Module in place
// and returns its remarks as text.
func Run(t *testing.T, glob string, o Options, apply func(c *Case) (remarks []string, err error)) {
	t.Helper()
	files, err := filepath.Glob(glob)
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files match %s: %v", glob, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) { runCase(t, file, name, o, apply) })
	}
}

func runCase(t *testing.T, file, name string, o Options, apply func(*Case) ([]string, error)) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	arc := txtar.Parse(data)
	c := &Case{Name: name, Opt: options(t, section(arc, "opt"))}
	before := parse(t, section(arc, "in"))
	c.Module = parse(t, section(arc, "in"))
	remarks, err := apply(c)
	got := map[string]string{"remark": lines(remarks)}
	if err != nil {
		got["err"] = strings.TrimRight(err.Error(), "\n") + "\n"
	} else {
		if err := c.Module.Verify(); err != nil {
			t.Fatalf("the pass made an invalid module: %v\n%s", err, c.Module)
		}
		got["out"] = c.Module.String()
		judge(t, o, c, before)
	}
	golden(t, file, arc, got)
}

// judge compares meanings; failures stand whatever the golden says.
func judge(t *testing.T, o Options, c *Case, before *ir.Module) {
	switch {
	case o.Check != nil:
		o.Check(t, c, before, c.Module)
	case o.Changes || c.Opt["changes"] == "yes":
	default:
		for seed := range uint64(3) {
			if err := interp.EquivalentModules(before, c.Module, seed+1); err != nil {
				t.Errorf("in and out disagree on random input %d: %v", seed+1, err)
			}
		}
	}
}

// golden compares the sections, or rewrites them.
func golden(t *testing.T, file string, arc *txtar.Archive, got map[string]string) {
	t.Helper()
	if *update && !t.Failed() {
		rewritten := &txtar.Archive{Comment: arc.Comment}
		for _, f := range arc.Files {
			if f.Name == "in" || f.Name == "opt" {
				rewritten.Files = append(rewritten.Files, f)
			}
		}
		for _, s := range []string{"out", "remark", "err"} {
			if got[s] != "" {
				rewritten.Files = append(rewritten.Files, txtar.File{Name: s, Data: []byte(got[s])})
			}
		}
		if text := txtar.Format(rewritten); !bytes.Equal(text, txtar.Format(arc)) {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for _, s := range []string{"out", "remark", "err"} {
		if want := section(arc, s); want != got[s] {
			t.Errorf("-- %s -- differs (go test -update rewrites it)\ngot:\n%s\nwant:\n%s\n%s", s, got[s], want, firstDifference(want, got[s]))
		}
	}
}

// Golden compares got with a whole file, or rewrites the file under -update.
func Golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (go test -update rewrites it)\n%s", file, firstDifference(string(want), got))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var x, y string
		if i < len(w) {
			x = w[i]
		}
		if i < len(g) {
			y = g[i]
		}
		if x != y {
			return "first difference:\n- " + x + "\n+ " + y
		}
	}
	return ""
}

func section(arc *txtar.Archive, name string) string {
	for _, f := range arc.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func parse(t *testing.T, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse(text)
	if err != nil {
		t.Fatalf("-- in --: %v", err)
	}
	if err := m.Verify(); err != nil {
		t.Fatalf("-- in --: %v", err)
	}
	return m
}

func options(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("-- opt --: %q is not key=value", line)
		}
		out[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return out
}

func lines(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return strings.Join(s, "\n") + "\n"
}
