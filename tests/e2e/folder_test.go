package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// contents are the checksums of all files of a compiled folder but the programs, by path.
func contents(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	out := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == "bin" {
				return fs.SkipDir
			}
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[filepath.ToSlash(rel)] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The same input gives the same folder, to the byte: in another place, over an old folder, from another working folder.
func TestCompilingTwiceGivesTheSameBytes(t *testing.T) {
	s := spec{model: fixtures.Path(t, "models/gpt2_tiny.opt.onnx"), batch: 4, dp: 2, micro: 2, lr: 1e-3}
	var first map[string][32]byte
	place := t.TempDir()
	for i, out := range []string{"a", "deep/er/place", "a"} {
		o := s.options(filepath.Join(place, out))
		if i == 1 {
			abs, err := filepath.Abs(o.Model)
			if err != nil {
				t.Fatal(err)
			}
			o.Model = abs
		}
		o.Source = true
		if _, err := compiler.Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		got := contents(t, o.Out)
		if first == nil {
			first = got
			t.Logf("%d files", len(got))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if got[name] != first[name] {
				t.Errorf("compilation %d: %s differs", i+1, name)
			}
		}
		if len(got) != len(first) {
			t.Errorf("compilation %d made %d files, the first %d", i+1, len(got), len(first))
		}
	}
}

// A compiled folder is a complete Go module: it builds and vets without a network or this repository, its Go is formatted,
// and nothing in it names the place where it was made.
func TestFolderIsACompleteModule(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "moved")
	if err := os.CopyFS(dir, os.DirFS(compiled(t, two).Dir)); err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(filepath.Join(dir, "bin"))
	// -trimpath finds in the build cache what compiling the folder left there. The program itself must not be found: vet would
	// look for the folder in which the cached one was made.
	launch := filepath.Join(dir, "prog0", "launch.go")
	text, err := os.ReadFile(launch)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(launch, fmt.Appendf(text, "\n// Moved at %d.\n", time.Now().UnixNano()), 0o666); err != nil {
		t.Fatal(err)
	}
	env := []string{"GOFLAGS=-mod=vendor -trimpath", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local"}
	for _, args := range [][]string{{"build", "./..."}, {"vet", "./cmd/...", "./prog0"}} {
		if code, text := command(context.Background(), dir, env, "go", args...); code != 0 {
			t.Errorf("go %v: code %d\n%s", args, code, text)
		}
	}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	generated := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".safetensors") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte(here)) || bytes.Contains(text, []byte(scratch)) {
			t.Errorf("%s names the place where it was made", path)
		}
		if strings.HasSuffix(path, ".go") && !strings.Contains(path, "/vendor/") {
			generated++
			if nice, err := format.Source(text); err != nil || !bytes.Equal(nice, text) {
				t.Errorf("%s is not gofmt'd: %v", path, err)
			}
		}
		return nil
	})
	if err != nil || generated < 5 {
		t.Errorf("%d generated Go files, %v", generated, err)
	}
}

// However a compilation ends, the next one into the same folder works, and what else lies there stays.
func TestKilledCompilation(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"compile", mlp, "--batch", "32", "--loss", "cross_entropy", "--no-build", "-o", out + "-whole"}
	gtc(t)
	begin := time.Now()
	code, text := command(context.Background(), ".", nil, gtc(t), args...)
	told(t, code, 0, text)
	took := time.Since(begin)
	args[len(args)-1] = out
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 12 {
		ctx, stop := context.WithTimeout(context.Background(), time.Duration(float64(took)*(0.2+0.7*random.Float64())))
		code, text := command(ctx, ".", nil, gtc(t), args...)
		stop()
		if code > 0 {
			t.Fatalf("attempt %d: code %d\n%s", i, code, text)
		}
	}
	code, text = command(context.Background(), ".", nil, gtc(t), args...)
	told(t, code, 0, text)
	for _, kept := range []string{"checkpoints/step-000001/index.json", "program.txt"} {
		path := filepath.Join(out, kept)
		os.MkdirAll(filepath.Dir(path), 0o777)
		os.WriteFile(path, nil, 0o666)
	}
	code, text = command(context.Background(), ".", nil, gtc(t), args...)
	told(t, code, 0, text)
	for _, kept := range []string{"checkpoints/step-000001/index.json", "program.txt", "prog0/step.go"} {
		if _, err := os.Stat(filepath.Join(out, kept)); err != nil {
			t.Error(err)
		}
	}
}
