package parallel

import (
	"context"
	"encoding/binary"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// TestUnequalData: ranks that find different numbers of samples would make different numbers of steps. Both say who
// has how many, and neither trains.
func TestUnequalData(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: building kernels takes seconds")
	}
	dir := filepath.Join(t.TempDir(), "out")
	o := &compiler.Options{Model: write(t, tiny), Import: onnx.Options{Batch: tinyBatch}, Out: dir, Build: true}
	o.Pass = pass.Options{Loss: "cross_entropy", IgnoreIndex: -100, DP: 2, Optimizer: sgd}
	if _, err := compiler.Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	few, many := tokenFile(t, 16), tokenFile(t, 24)
	for what, args := range map[string][2][]string{
		"--data":      {{"--data", few}, {"--data", many}},
		"--eval-data": {{"--data", few, "--eval-data", few}, {"--data", few, "--eval-data", many}},
	} {
		var wg sync.WaitGroup
		for rank, name := range []string{"rank-0", "rank-1"} {
			wg.Go(func() {
				cmd := exec.Command(filepath.Join(dir, "bin", name), append(args[rank], "--dir", dir, "--checkpoint-dir", "none")...)
				text, err := cmd.CombinedOutput()
				want := what + ": all ranks must read the same data, of which each takes its part: rank 0 has 16 samples, but rank 1 has 24"
				if err == nil || rank == 0 && !strings.Contains(string(text), want) || strings.Contains(string(text), "step 1/") {
					t.Errorf("%s: rank %d: %v\n%s", what, rank, err, text)
				}
			})
		}
		wg.Wait()
	}
}

// tokenFile is a file of n samples of tokens and labels.
func tokenFile(t *testing.T, n int) string {
	t.Helper()
	data := make([]byte, 8*n*tiny.Seq)
	for i := range n * tiny.Seq {
		binary.LittleEndian.PutUint64(data[8*i:], uint64(math.Mod(float64(i*i), float64(tiny.Vocab))))
	}
	var arrays []npz.Array
	for _, name := range []string{"in0", "target"} {
		arrays = append(arrays, npz.Array{Name: name, DType: "i64", Shape: []int{n, tiny.Seq}, Data: data})
	}
	file := filepath.Join(t.TempDir(), "data.npz")
	if err := npz.WriteFile(file, arrays); err != nil {
		t.Fatal(err)
	}
	return file
}
