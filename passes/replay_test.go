package passes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestReplay: every pass of every sample, run again on what a dump folder holds, makes the same as it did.
func TestReplay(t *testing.T) {
	for _, s := range orderSamples(t) {
		dir := t.TempDir()
		s.opt.DumpDir = dir
		if _, err := s.through(t, passes.Table); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		list, err := passes.ReplayDump(dir, passes.Table)
		if err != nil || len(list) != len(passes.Table) {
			t.Errorf("%s: %d passes, %v", s.name, len(list), err)
		}
		for _, r := range list {
			if r.Err != nil || r.Diff != "" {
				t.Errorf("%s: %s: %v, difference\n%.2000s", s.name, r.Pass, r.Err, r.Diff)
			}
		}
	}
}

// TestReplayTells: a pass that does otherwise is told, and no later one; what is missing or damaged is an error that says what.
func TestReplayTells(t *testing.T) {
	s := orderSamples(t)[0]
	dir := t.TempDir()
	s.opt.DumpDir, s.opt.Disable = dir, []string{"unstack"}
	if _, err := s.through(t, passes.Table); err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(passes.Table)
	k := slices.IndexFunc(other, func(p pass.Pass) bool { return p.Name == "rows" })
	other[k].Run = func(c *pass.Context) error {
		f := c.Module.Func("step")
		b := ir.NewBuilder(f)
		b.Loc = ir.Loc{Node: "other"}
		b.Result("more", ops.Neg(b, f.Result("loss_sum")))
		return nil
	}
	list, err := passes.ReplayDump(dir, other)
	if err != nil || len(list) != len(passes.Table)-1 {
		t.Fatalf("%d passes, %v", len(list), err)
	}
	for _, r := range list {
		if changed := r.Diff != ""; changed != (r.Pass == "rows") || r.Err != nil {
			t.Errorf("%s: %v, difference %s", r.Pass, r.Err, r.Diff)
		}
		if r.Pass == "rows" && !strings.Contains(r.Diff, "+  %neg = neg %loss_sum") {
			t.Errorf("the difference is\n%s", r.Diff)
		}
	}
	base, options := filepath.Join(dir, "replay", "00-input.json"), filepath.Join(dir, "replay", "replay.json")
	for _, c := range []struct {
		damage func() error
		table  []pass.Pass
		want   string
	}{
		{func() error { return nil }, passes.Table[:6], "a pass \"precision\", which this gtc does not have"},
		{inFile(base, `"Context": {`, `"Context": null, "x": {`), passes.Table, "lacks the facts of a program"},
		{inFile(base, `"Programs": null`, `"Programs": [null]`), passes.Table, "lacks the facts of a program"},
		{inFile(base, `"Programs": null`, `"Programs": [{}, {}]`), passes.Table, "facts for 2"},
		{inFile(base, `"Modules": [`, `"Modules": [], "x": [`), passes.Table, "modules for 0"},
		{inFile(base, "", ""), passes.Table, ""}, // as it was
		{inFile(options, `"Target": ""`, `"Target": "abacus"`), passes.Table, "not \"abacus\""},
		{inFile(options, "", ""), passes.Table, ""},
		{func() error { return os.Remove(filepath.Join(dir, "02-recognize.ir")) }, passes.Table, ""},
		{func() error { return os.WriteFile(filepath.Join(dir, "00-input.ir"), []byte("func"), 0o644) }, passes.Table, "00-input.ir"},
		{func() error { return os.Remove(filepath.Join(dir, "replay", "replay.json")) }, passes.Table, "is not a folder that --dump of this version of gtc wrote"},
	} {
		if err := c.damage(); err != nil && c.want != "" {
			t.Fatal(err)
		}
		if _, err := passes.ReplayDump(dir, c.table); c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// inFile replaces old, which must be there, in a file as it is now.
func inFile(path, old, with string) func() error {
	text, err := os.ReadFile(path)
	return func() error {
		if !strings.Contains(string(text), old) {
			return errors.Join(err, fmt.Errorf("%s has no %s", path, old))
		}
		return os.WriteFile(path, []byte(strings.Replace(string(text), old, with, 1)), 0o644)
	}
}

// TestReplayOtherSizes: what a pass asks of other sizes of the batch is refused, where it is damaged, as a failure of that pass.
func TestReplayOtherSizes(t *testing.T) {
	dir := t.TempDir()
	c := &pass.Context{Module: &ir.Module{Funcs: []*ir.Func{{Name: "forward"}}}, Opt: &pass.Options{DumpDir: dir}}
	c.Sized = func(int) (*ir.Func, error) { return &ir.Func{Name: "forward"}, nil }
	c.Larger = c.Sized
	asks := []pass.Pass{{Name: "asks", Run: func(c *pass.Context) error {
		_, err := c.Sized(2)
		return err
	}}}
	if err := passes.Run(c, asks); err != nil {
		t.Fatal(err)
	}
	facts, text := filepath.Join(dir, "replay", "sized-2.json"), filepath.Join(dir, "replay", "sized-2.ir")
	for _, c := range []struct {
		path, old, with, want string
	}{
		{facts, "", "", ""},
		{facts, `"Modules": [`, `"Modules": [], "x": [`, "sized-2.json has 0 modules"},
		{text, "func @forward", "func @other", "sized-2.ir: the facts about @other"},
		{text, "func @forward", "// func @forward", "sized-2.ir"},
	} {
		restore := inFile(c.path, "", "")
		if err := inFile(c.path, c.old, c.with)(); err != nil {
			t.Fatal(err)
		}
		list, err := passes.ReplayDump(dir, asks)
		if err != nil || len(list) != 1 || (list[0].Err == nil) != (c.want == "") || c.want != "" && !strings.Contains(list[0].Err.Error(), c.want) || c.want != "" && strings.Contains(list[0].Err.Error(), "panic") {
			t.Errorf("%s: %v, %+v", c.want, err, list)
		}
		if err := restore(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplayOfFailure: of a compilation that failed, passes are run up to the one that did, which fails again, or is told to run;
// and a folder that is dumped into twice holds nothing of the first time but what is not a dump's.
func TestReplayOfFailure(t *testing.T) {
	s, dir := orderSamples(t)[0], t.TempDir()
	s.opt.DumpDir = dir
	if _, err := s.through(t, passes.Table); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	broken := slices.Clone(passes.Table)
	k := slices.IndexFunc(broken, func(p pass.Pass) bool { return p.Name == "rows" })
	broken[k].Run = func(*pass.Context) error { return errors.New("as it does") }
	if _, err := s.through(t, broken); err == nil {
		t.Fatal("no failure")
	}
	if made, _ := filepath.Glob(filepath.Join(dir, "*-memplan.ir")); len(made) > 0 {
		t.Errorf("%v is of the first time", made)
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.txt")); err != nil {
		t.Error(err)
	}
	for _, table := range [][]pass.Pass{broken, passes.Table} {
		list, err := passes.ReplayDump(dir, table)
		if err != nil || len(list) != k+1 {
			t.Fatalf("%d passes, %v", len(list), err)
		}
		for i, r := range list {
			fails := i == k && &table[0] == &broken[0]
			if (r.Err != nil) != fails || (r.Diff != "") != (i == k) {
				t.Errorf("%s: %v, %q", r.Pass, r.Err, r.Diff)
			}
		}
	}
}
