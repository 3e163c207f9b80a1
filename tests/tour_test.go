package tests

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

var update = flag.Bool("update", false, "rewrite docs/tour.md from docs/tour.md.tmpl")

// The model of the tour and what is done with it; the page shows the command.
const (
	tourModel   = "docs/tour.onnx"
	tourCommand = "gtc compile docs/tour.onnx -o tour-out --batch 8 --dp 2 --loss cross_entropy --optimizer sgd --lr 0.1"
)

// tour is a compiled model and what it looked like after each pass.
type tour struct {
	res    *compiler.Result
	stages []stage
	told   []string // passes that the page has a section for
}

// stage is @step after one row of the table; row -1 is the importer's module.
type stage struct {
	name string
	step []string // lines, without locations
}

// TestTour: docs/tour.md is what its template makes of a real compilation. Where it differs, look at the difference, then
//
//	go test ./tests -run TestTour -update
func TestTour(t *testing.T) {
	x := compileTour(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "tour.md.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := template.New("tour").Funcs(x.funcs()).Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := page.Execute(&got, nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range passes.Table {
		if !slices.Contains(x.told, p.Name) {
			t.Errorf("docs/tour.md.tmpl has no section on pass %s", p.Name)
		}
	}
	path := filepath.Join(root, "docs", "tour.md")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		n, a, b := firstDifference(got.String(), string(want))
		t.Errorf("docs/tour.md is out of date from line %d on:\n  %s\nthe compiler now gives\n  %s\nif that is meant: go test ./tests -run TestTour -update", n, b, a)
	}
}

// firstDifference gives the number and both forms of the first line that differs.
func firstDifference(got, want string) (line int, a, b string) {
	x, y := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(x), len(y)) {
		a, b = "(nothing)", "(nothing)"
		if i < len(x) {
			a = x[i]
		}
		if i < len(y) {
			b = y[i]
		}
		if a != b {
			return i + 1, a, b
		}
	}
	return 0, "", ""
}

func compileTour(t *testing.T) *tour {
	t.Helper()
	dir := t.TempDir()
	o := &compiler.Options{Model: filepath.Join(root, filepath.FromSlash(tourModel)), Out: filepath.Join(dir, "out"), Import: onnx.Options{Batch: 8}}
	o.Pass = pass.Options{Loss: "cross_entropy", IgnoreIndex: -100, DP: 2, DumpDir: filepath.Join(dir, "dump"), Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}}
	res, err := compiler.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	x := &tour{res: res}
	last := readStage(t, o.Pass.DumpDir, "00-input", "forward")
	x.stages = append(x.stages, stage{"input", last})
	for i, p := range passes.Table {
		if s := readStage(t, o.Pass.DumpDir, fmt.Sprintf("%02d-%s", i+1, p.Name), "step"); s != nil {
			last = s
		}
		x.stages = append(x.stages, stage{p.Name, last})
	}
	return x
}

var location = regexp.MustCompile(`  # .*$`)

// readStage gives one function of a dumped module; nil when the pass changed nothing.
func readStage(t *testing.T, dir, name, function string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name+".ir"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(text), "func @"+function+"(")
	if !ok {
		return nil
	}
	body, _, _ = strings.Cut(body, "\n}")
	lines := strings.Split("func @"+function+"("+body+"\n}", "\n")
	for i := range lines {
		lines[i] = location.ReplaceAllString(lines[i], "")
	}
	return lines
}

// funcs are what the template may call.
func (x *tour) funcs() template.FuncMap {
	return template.FuncMap{
		"command": func() string { return tourCommand },
		"heading": x.heading,
		"whole":   func(p string) (string, error) { s, err := x.at(p); return fence(s), err },
		"added":   func(p string) (string, error) { s, err := x.change(p, false); return fence(s), err },
		"changed": func(p string) (string, error) { s, err := x.change(p, true); return fence(s), err },
		"remarks": x.remarks,
		"groups":  x.groups,
		"kernel":  x.kernel,
		"call":    x.call,
		"memory":  x.memory,
		"calls":   x.calls,
		"located": x.located,
	}
}

// heading is the title of a pass's section with its row's reason.
func (x *tour) heading(name string) (string, error) {
	for i, p := range passes.Table {
		if p.Name == name {
			x.told = append(x.told, name)
			return fmt.Sprintf("## %d. %s\n\n*Why here: %s.*", i+1, name, p.Why), nil
		}
	}
	return "", fmt.Errorf("no pass is called %q", name)
}

func (x *tour) index(name string) (int, error) {
	i := slices.IndexFunc(x.stages, func(s stage) bool { return s.name == name })
	if i < 0 {
		return 0, fmt.Errorf("no stage is called %q", name)
	}
	return i, nil
}

// at is the function after a pass.
func (x *tour) at(name string) ([]string, error) {
	i, err := x.index(name)
	if err != nil {
		return nil, err
	}
	return x.stages[i].step, nil
}

// change is what a pass added to @step and, with both, what it took away.
func (x *tour) change(name string, both bool) ([]string, error) {
	i, err := x.index(name)
	if err != nil || i == 0 {
		return nil, err
	}
	before, after := x.stages[i-1].step, x.stages[i].step
	var out []string
	for _, l := range before {
		if both && !slices.Contains(after, l) {
			out = append(out, "-"+l)
		}
	}
	for _, l := range after {
		if !slices.Contains(before, l) {
			if both {
				l = "+" + l
			}
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("pass %s changes nothing in @step", name)
	}
	return out, nil
}

// remarks lists what a pass said of @step.
func (x *tour) remarks(name string) (string, error) {
	var out []string
	for _, r := range x.res.Context.Remarks {
		if r.Pass == name {
			out = append(out, r.String())
		}
	}
	if len(out) == 0 {
		return "", fmt.Errorf("pass %s made no remark", name)
	}
	return fence(out), nil
}

// fence prints lines as a code block, long ones broken at commas.
func fence(lines []string) string {
	const width = 110
	var b strings.Builder
	b.WriteString("```\n")
	for _, l := range lines {
		for len(l) > width {
			at := strings.LastIndex(l[:width], ", ")
			if at < 20 {
				break
			}
			b.WriteString(l[:at+1] + "\n")
			l = "      " + l[at+2:]
		}
		b.WriteString(l + "\n")
	}
	return b.String() + "```"
}

func (x *tour) step() *ir.Func { return x.res.Module.Func("step") }

// groups lists the kernels of @step with the ops in each.
func (x *tour) groups() string {
	out := []string{fmt.Sprintf("%-5s %-20s %s", "group", "first op to last op", "makes")}
	outs := group.Outputs(x.step())
	for _, g := range group.List(x.step()) {
		var kinds, stored []string
		for _, op := range g.Ops {
			kinds = append(kinds, op.Def.Name)
		}
		for _, v := range outs[g.ID] {
			stored = append(stored, "%"+v.Name)
		}
		out = append(out, fmt.Sprintf("%5d %-30s %s", g.ID, strings.Join(kinds, " "), strings.Join(stored, ", ")))
	}
	out[0] = fmt.Sprintf("%5s %-30s %s", "group", "ops", "what it stores")
	return fence(out)
}

// calls is what @step does when it runs.
func (x *tour) calls() string {
	_, text, _ := strings.Cut(x.step().String(), "} calls {")
	return fence(strings.Split("calls {"+strings.TrimRight(text, "\n"), "\n"))
}

// file reads a generated file of the program.
func (x *tour) file(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(x.res.Dir, "prog0", name))
	return string(text), err
}

// call is the entry of the generated call list that makes a value.
func (x *tour) call(value string) (string, error) {
	text, err := x.file("step.go")
	if err != nil {
		return "", err
	}
	_, list, _ := strings.Cut(text, "[]train.Call{\n")
	for _, entry := range strings.SplitAfter(list, "\n\t},\n") {
		if _, out, _ := strings.Cut(entry, "Out: "); strings.Contains(out, fmt.Sprintf("%q}", value)) {
			return "```go\n" + entry + "```", nil
		}
	}
	return "", fmt.Errorf("no call makes %q", value)
}

// kernel is the C text of the generated kernel that makes a value.
func (x *tour) kernel(value string) (string, error) {
	entry, err := x.call(value)
	if err != nil {
		return "", err
	}
	name := regexp.MustCompile(` = (k\d+_\w+)"`).FindStringSubmatch(entry)
	text, err := x.file("kernels.c")
	if err != nil || name == nil {
		return "", fmt.Errorf("no generated kernel makes %q: %w", value, err)
	}
	_, body, ok := strings.Cut(text, "\nvoid "+name[1]+"(")
	if !ok {
		return "", fmt.Errorf("kernels.c has no %s", name[1])
	}
	body, _, _ = strings.Cut(body, "\n}\n")
	return "```c\nvoid " + name[1] + "(" + body + "\n}\n```", nil
}

// located prints the op that makes a value, and below it its location.
func (x *tour) located(value string) (string, error) {
	for _, op := range x.step().Ops {
		if op.Out[0].Name == value {
			return fence([]string{"%" + value + "  # " + op.Loc.String()}), nil
		}
	}
	return "", fmt.Errorf("no op makes %q", value)
}

// memory is the arena: what has a place for good, and what @step's kernels make.
func (x *tour) memory() string {
	out := []string{fmt.Sprintf("%6s %6s  %-9s %s", "offset", "bytes", "kind", "value")}
	for _, p := range x.step().Params {
		out = append(out, fmt.Sprintf("%6d %6d  %-9s %%%s", p.Offset, p.Type.Bytes(), p.Role, p.Name))
	}
	made := group.Outputs(x.step())
	for _, g := range group.List(x.step()) {
		for _, v := range made[g.ID] {
			out = append(out, fmt.Sprintf("%6d %6d  group %-3d %%%s", v.Offset, v.Type.Bytes(), g.ID, v.Name))
		}
	}
	plan := x.res.Context.Plan
	out = append(out, fmt.Sprintf("%6d %6d  %-9s shared by kernels that need scratch", plan.Workspace, plan.WorkBytes, "workspace"),
		fmt.Sprintf("%6d         end of the arena", plan.ArenaBytes))
	return fence(out)
}
