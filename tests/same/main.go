// Command same compiles the models of ../shared/models with two commits of gtc and prints where what they generate differs:
// for changes of the compiler that may change no program.
//
//	go run ./tests/same [-base main] [-only gpt2] [-layouts 2] [-targets cpu,cuda] [-all] [-losses]
//
// The one side is the commit of -base, built in a temporary checkout, the other the working tree. Each case is one model in one of
// eight layouts, in fp32 and bf16, for one target; the two sides take turns (A B A B). Kernels, programs and plans are compared to
// the byte, apart from the module's own vendored sources and from words that have been given other names (renames.go), and
// refusals in other words are shown and counted apart. With -losses folders are built as well, train five steps on the reference's
// batch, and give the losses and gradients of these steps to the bit. The exit status is 1 when anything differs. At the end stands
// the ratio of the processor time that compiling took, working tree over base.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/runtime/npz"
)

// layouts are what each model is compiled for.
var layouts = []string{
	"",
	"--microbatches 2 --clip-norm 1",
	"--dp 2",
	"--dp 2 --zero 3",
	"--tp 2",
	"--dp 2 --tp 2 --zero 1",
	"--pp 2 --microbatches 2",
	"--dp 2 --pp 2 --microbatches 2 --reproducible",
}

// targets are the flags of each target; what is compiled for cuda also runs, on the host.
var targets = map[string]string{"cpu": "--target cpu", "cuda": "--target cuda --arch host"}

// options are the command's flags.
type options struct {
	base, only, targets string
	layouts             int
	all, losses         bool
}

func main() {
	var o options
	flag.StringVar(&o.base, "base", "main", "the `commit` to compare with")
	flag.StringVar(&o.only, "only", "", "only models whose file name contains this")
	flag.StringVar(&o.targets, "targets", "cpu,cuda", "the targets")
	flag.IntVar(&o.layouts, "layouts", len(layouts), "only the first `n` layouts")
	flag.BoolVar(&o.all, "all", false, "all files of a model, not the first of each")
	flag.BoolVar(&o.losses, "losses", false, "build and train five steps as well")
	flag.Parse()
	same, err := compare(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests/same:", err)
		os.Exit(2)
	}
	if !same {
		os.Exit(1)
	}
}

// side is one of the two compilers.
type side struct {
	name, gtc, out string
	cache, goCache string        // each has images of kernels to itself, so that none finds what the other has compiled; Go's are one
	took           time.Duration // processor time of the compiler and its children
}

// compare runs all cases and says whether both sides agree on each.
func compare(o options) (bool, error) {
	temp, err := os.MkdirTemp("", "gtc-same-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(temp)
	sides, err := build(temp, o.base)
	if err != nil {
		return false, err
	}
	models, err := filepath.Glob("../shared/models/*.onnx")
	if err != nil || len(models) == 0 {
		return false, fmt.Errorf("there is no model in ../shared/models: %w", errors.Join(err, fs.ErrNotExist))
	}
	seen, cases, differ, refused, reworded := map[string]bool{}, 0, 0, 0, 0
	for _, model := range models {
		family, _, _ := strings.Cut(filepath.Base(model), ".")
		if !strings.Contains(filepath.Base(model), o.only) || seen[family] && !o.all {
			continue
		}
		seen[family] = true
		for _, flags := range variants(o) {
			first, err := sides[0].run(model, family, flags, o.losses)
			if err != nil {
				return false, err
			}
			second, err := sides[1].run(model, family, flags, o.losses)
			if err != nil {
				return false, err
			}
			cases++
			if len(first) == 1 && first[refusal] != nil {
				refused++
			}
			switch names := different(first, second); {
			case len(names) == 1 && names[0] == refusal && len(first) == len(second):
				reworded++
				fmt.Printf("refused  %s %s in other words:\n    %s\n    %s\n", filepath.Base(model), flags, oneLine(first[refusal]), oneLine(second[refusal]))
			case len(names) > 0:
				differ++
				fmt.Printf("differs  %s %s: %s\n", filepath.Base(model), flags, strings.Join(names, " "))
			}
		}
	}
	fmt.Printf("%d cases, %d of them refused, %d in other words; %d differ\n", cases, refused, reworded, differ)
	fmt.Printf("compiled in %.2f times the processor time of %s (%.1f s, %.1f s)\n", sides[1].took.Seconds()/sides[0].took.Seconds(), o.base, sides[1].took.Seconds(), sides[0].took.Seconds())
	return differ == 0, nil
}

// oneLine is the text of a refusal on one line.
func oneLine(text []byte) string { return strings.Join(strings.Fields(string(text)), " ") }

// variants are the flags of all cases of one model.
func variants(o options) []string {
	var list []string
	for _, target := range strings.Split(o.targets, ",") {
		for _, layout := range layouts[:min(o.layouts, len(layouts))] {
			for _, precision := range []string{"fp32", "bf16"} {
				list = append(list, strings.Join(strings.Fields(targets[target]+" --precision "+precision+" "+layout), " "))
			}
		}
	}
	return list
}

// build makes both compilers: that of the commit in a checkout below temp, and that of the working tree.
func build(temp, base string) ([]*side, error) {
	checkout := filepath.Join(temp, "base")
	if out, err := exec.Command("git", "worktree", "add", "--detach", checkout, base).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("git worktree add %s: %w: %s", base, err, out)
	}
	defer exec.Command("git", "worktree", "remove", "--force", checkout).Run()
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	sides := []*side{{name: base}, {name: "tree"}}
	for i, dir := range []string{checkout, "."} {
		s := sides[i]
		// Both write to the same place, one after the other, so that no path of theirs differs.
		s.gtc, s.out = filepath.Join(temp, s.name+strconv.Itoa(i), "gtc"), filepath.Join(temp, "out")
		s.cache, s.goCache = filepath.Join(filepath.Dir(s.gtc), "cache"), strings.TrimSpace(string(goCache))
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", s.gtc, "./cmd/gtc")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go build of %s: %w: %s", s.name, err, out)
		}
	}
	return sides, nil
}

// refusal is the name under which the compiler's error stands in place of files.
const refusal = "error"

// run compiles a model and returns what it made, by file.
func (s *side) run(model, family, flags string, losses bool) (map[string][]byte, error) {
	if err := os.RemoveAll(s.out); err != nil {
		return nil, err
	}
	reference := filepath.Join(filepath.Dir(model), family+".npz")
	batch, err := samples(reference)
	if err != nil {
		return nil, err
	}
	loss := map[string]string{"unet_tiny": "mse", "gpt_loss_inside": "graph"}[family]
	if loss == "" {
		loss = "cross_entropy"
	}
	args := []string{"compile", model, "--batch", strconv.Itoa(batch), "--loss", loss, "--optimizer", "adamw", "-o", s.out}
	if !losses {
		args = append(args, "--no-build")
	}
	cmd := exec.Command(s.gtc, append(args, strings.Fields(flags)...)...)
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+s.cache, "GOCACHE="+s.goCache)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil {
		s.took += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return map[string][]byte{refusal: text}, nil
	}
	if err != nil {
		return nil, err
	}
	files, err := contents(s.out)
	if err != nil || !losses {
		return files, err
	}
	results := filepath.Join(filepath.Dir(s.out), "results.npz")
	if text, err := exec.Command(s.gtc, "run", s.out, "--fixed-batch", reference, "--steps", "5", "--results", results).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s %s does not run: %w: %s", model, flags, err, text)
	}
	files["losses"], err = os.ReadFile(results)
	return files, err
}

// samples is the number of samples in a reference, which a file with a fixed batch has too.
func samples(reference string) (int, error) {
	f, err := npz.Open(reference)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h, err := f.Header("in0")
	if err != nil {
		return 0, err
	}
	return h.Shape[0], nil
}

// hash matches the hashes in plans: those of files that are compared themselves, of the stand-in that runs kernels, and of all these.
var hash = regexp.MustCompile(`: "[0-9a-f]{32}"`)

// contents reads what was generated: all files but the vendored packages, the copy of the model and the binaries.
func contents(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{"vendor", "source", "bin"}, name) {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".c", ".h", ".cu", ".cuh":
			files[filepath.ToSlash(name)], err = os.ReadFile(path)
		case ".json":
			files[filepath.ToSlash(name)], err = os.ReadFile(path)
			files[filepath.ToSlash(name)] = hash.ReplaceAll(files[filepath.ToSlash(name)], []byte(`: ""`))
		}
		return err
	})
	return files, err
}

// different are the names of the files that are not the same in a and b.
func different(a, b map[string][]byte) []string {
	var names []string
	for name := range a {
		if other, ok := b[name]; !ok || !equal(name, a[name], other) {
			names = append(names, name)
		}
	}
	for name := range maps.Keys(b) {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
