// Package e2e compiles real models, runs the programs that come out as processes, and does to them what happens to
// programs: kills, full disks, wrong files.
//
// What would take minutes runs only with GTC_LONG=1:
//
//	GTC_LONG=1 go test -v -timeout 30m ./tests/e2e
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// scratch holds what tests share: compiled folders and the gtc program. It is removed at the end.
var scratch string

func TestMain(m *testing.M) {
	code, err := 1, error(nil)
	if scratch, err = os.MkdirTemp("", "gtc-e2e-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code = m.Run()
	os.RemoveAll(scratch)
	os.Exit(code)
}

// root is the repository, as seen from this folder.
const root = "../.."

// Models and data of the examples.
var (
	mlp      = filepath.Join(root, "examples/mnist/mlp.onnx")
	gpt      = filepath.Join(root, "examples/shakespeare/gpt.onnx")
	digits   = filepath.Join(root, "examples/mnist/train.npz")
	unseen   = filepath.Join(root, "examples/mnist/test.npz")
	classify = "cross_entropy"
)

// plays makes the token file that trains gpt; the repository holds only its text.
func plays(t testing.TB) string {
	t.Helper()
	code, text := command(context.Background(), root, nil, "go", "run", "./examples/shakespeare/prepare", "-out", scratch)
	if code != 0 {
		t.Fatal(text)
	}
	return filepath.Join(scratch, "train.bin")
}

// spec is what tests compile; equal specs share one folder.
type spec struct {
	model            string
	batch, dp, micro int
	lr               float64
	tp, zero, pp     int
	schedule         string // of the pipeline; "" is 1f1b
}

// ranks is how many programs a job of s has.
func (s spec) ranks() int { return max(s.dp, 1) * max(s.tp, 1) * max(s.pp, 1) }

// options are the compiler's for a spec.
func (s spec) options(out string) *compiler.Options {
	o := &compiler.Options{Model: s.model, Out: out}
	o.Import.Batch = s.batch
	o.Pass = pass.Options{Loss: classify, IgnoreIndex: -100, DP: max(s.dp, 1), Microbatches: max(s.micro, 1), TP: max(s.tp, 1), Zero: s.zero, Threads: 1,
		PP: max(s.pp, 1), Pipeline: s.schedule,
		Optimizer: pass.Optimizer{Name: "adamw", LR: s.lr, WeightDecay: 0.01, NoDecay: []string{"1d"}}}
	return o
}

// Specs that several tests use.
var (
	one = spec{model: mlp, batch: 32, dp: 1, micro: 1, lr: 2e-3}
	two = spec{model: mlp, batch: 32, dp: 2, micro: 1, lr: 2e-3}
)

// built is a compiled folder, made once.
type built struct {
	once sync.Once
	res  *compiler.Result
	err  error
}

var (
	foldersMu sync.Mutex
	folders   = map[spec]*built{}
)

// compiled gives the folder of a spec, with its programs. Tests leave it as it is: checkpoints go elsewhere.
func compiled(t testing.TB, s spec) *compiler.Result {
	t.Helper()
	foldersMu.Lock()
	b := folders[s]
	if b == nil {
		b = &built{}
		folders[s] = b
	}
	n := len(folders)
	foldersMu.Unlock()
	b.once.Do(func() {
		o := s.options(filepath.Join(scratch, fmt.Sprintf("out-%d", n)))
		o.Build = true
		b.res, b.err = compiler.Run(context.Background(), o)
	})
	if b.err != nil {
		t.Fatalf("%+v: %v", s, b.err)
	}
	return b.res
}

var gtcOnce = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(scratch, "gtc")
	code, text := command(context.Background(), root, nil, "go", "build", "-o", bin, "./cmd/gtc")
	if code != 0 {
		return "", errors.New(text)
	}
	return bin, nil
})

// gtc is the gtc program.
func gtc(t testing.TB) string {
	t.Helper()
	bin, err := gtcOnce()
	if err != nil {
		t.Fatalf("cmd/gtc does not build: %v", err)
	}
	return bin
}
