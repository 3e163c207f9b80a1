package faults

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
)

// Rows about steps in which nothing counts.
var emptyComparisons = []comparison{
	{file: "all_ignored", processes: []string{"--dp 2 --microbatches 2"}, says: []string{"nothing counts in 3 of 3 steps"},
		layouts: slices.Concat(everyLayout, []string{"--tp 2", "--dp 2 --zero 1", "--dp 2 --zero 3", "--dp 2 --grad-compress powersgd", "--precision fp16"})},
}

// emptyLayouts are tried by default, longEmptyLayouts with GTC_LONG=1.
var (
	emptyLayouts     = []string{"--optimizer adamw", "--dp 2 --microbatches 2 --optimizer adamw", "--pp 2 --microbatches 2 --optimizer sgd --momentum 0.9 --clip-norm 0.1"}
	longEmptyLayouts = []string{"--optimizer sgd --momentum 0.9 --dampening 0.5", "--dp 2 --zero 1 --optimizer adamw", "--dp 2 --zero 3 --optimizer lamb",
		"--dp 2 --grad-compress powersgd --optimizer adamw", "--dp 2 --grad-compress topk --optimizer adamw", "--dp 2 --grad-compress int8 --optimizer adamw",
		"--dp 2 --local-sgd 1 --optimizer adamw", "--dp 2 --pp 2 --microbatches 2 --optimizer adamw", "--tp 2 --optimizer lion", "--reproducible --dp 2 --optimizer adamw",
		"--precision fp16 --optimizer adamw", "--precision fp16 --dp 2 --zero 2 --optimizer adamw", "--precision bf16 --optimizer adamw",
		"--target cuda --arch host --optimizer adamw", "--target cuda --arch host --dp 2 --optimizer adamw"}
)

// Batches of the file that emptyData writes: of some samples, of none, of the second half of the samples alone.
const (
	full = iota
	none
	half
)

// emptyData writes batches of eight samples for all_ignored; equal numbers are not equal samples.
func emptyData(t *testing.T, batches ...int) string {
	t.Helper()
	x := npz.Array{Name: "x", DType: "f32", Shape: []int{8 * len(batches), 4}}
	target := npz.Array{Name: "target", DType: "i64", Shape: []int{8 * len(batches)}}
	seen := 0.0 // samples of batches that are not empty
	for _, kind := range batches {
		for i := range 8 {
			for k := range 4 {
				x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(float32(math.Sin(seen*4+float64(k)+1))))
			}
			label := int64(-100)
			if kind == full || kind == half && i >= 4 {
				label = int64(seen) % 3
			}
			target.Data = binary.LittleEndian.AppendUint64(target.Data, uint64(label))
			if kind != none {
				seen++
			}
		}
	}
	path := filepath.Join(t.TempDir(), "data.npz")
	if err := npz.WriteFile(path, []npz.Array{x, target}); err != nil {
		t.Fatal(err)
	}
	return path
}

// trained runs a folder on data in its order and gives the exported weights and what was printed.
func trained(t *testing.T, dir, data string, flags ...string) (map[string][]float64, *outcome) {
	t.Helper()
	args := slices.Concat([]string{"run", dir, "--data", data, "--json", "--log-every", "1", "--shuffle=false"}, flags)
	code, text := gtc(t, args...)
	if code != 0 {
		t.Fatalf("gtc %s: code %d\n%s", strings.Join(args, " "), code, text)
	}
	return exported(t, dir), &outcome{ran: text}
}

// TestEmptySteps: a run with empty steps, the first one among them, gives to the bit the weights of one without them, as
// when a user of PyTorch does not call optimizer.step(). A batch of which only one rank's or micro-batch's samples count is
// none. A break in between changes nothing.
func TestEmptySteps(t *testing.T) {
	if !chosen("all_ignored") {
		return
	}
	layouts := emptyLayouts
	if long() {
		layouts = slices.Concat(layouts, longEmptyLayouts)
	}
	for _, l := range layouts {
		t.Run(label(l), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			args := append([]string{"compile", input(t, "all_ignored.onnx"), "-o", dir, "--threads", "1", "--batch", "8", "--loss", "cross_entropy", "--lr", "0.1",
				"--weight-decay", "0.1"}, strings.Fields(l)...)
			if code, text := gtc(t, args...); code != 0 {
				t.Fatalf("gtc %s: code %d\n%s", strings.Join(args, " "), code, text)
			}
			want, _ := trained(t, dir, emptyData(t, full, half, full), "--checkpoint-dir", filepath.Join(dir, "checkpoints"))
			data := emptyData(t, none, full, none, half, none, full)
			got, o := trained(t, dir, data)
			sameWeights(t, got, want)
			var empty []string
			for _, e := range o.events("step") {
				empty = append(empty, fmt.Sprintf("%v %t", e["empty"], e["loss"] == nil))
			}
			if got := strings.Join(empty, ", "); got != "1 true, 1 false, 2 true, 2 false, 3 true, 3 false" {
				t.Errorf("empty steps so far, and whether the step has no loss: %s\n%s", got, o.ran)
			}
			trained(t, dir, data, "--steps", "3")
			got, _ = trained(t, dir, data, "--steps", "6", "--resume")
			sameWeights(t, got, want)
		})
	}
}

func sameWeights(t *testing.T, got, want map[string][]float64) {
	t.Helper()
	if len(want) == 0 || fmt.Sprint(slices.Sorted(maps.Keys(got))) != fmt.Sprint(slices.Sorted(maps.Keys(want))) {
		t.Fatalf("weights %v, want %v", got, want)
	}
	for name, w := range want {
		if !slices.Equal(got[name], w) {
			t.Errorf("%s is %v with empty steps, %v without", name, got[name], w)
		}
	}
}

// TestOnEmptyFail: --on-empty fail ends the run at the first empty step, and says which and why, on one rank and several.
func TestOnEmptyFail(t *testing.T) {
	if !chosen("all_ignored") {
		return
	}
	for _, l := range []string{"", "--dp 2"} {
		dir := filepath.Join(t.TempDir(), "out")
		args := append([]string{"compile", input(t, "all_ignored.onnx"), "-o", dir, "--threads", "1", "--batch", "8", "--loss", "cross_entropy", "--lr", "0.1"}, strings.Fields(l)...)
		if code, text := gtc(t, args...); code != 0 {
			t.Fatalf("code %d\n%s", code, text)
		}
		code, text := gtc(t, "run", dir, "--data", emptyData(t, full, none), "--shuffle=false", "--on-empty", "fail")
		if code != 1 || !strings.Contains(text, "step 2: nothing in this batch counts for the loss") {
			t.Errorf("%s: code %d\n%s", label(l), code, text)
		}
		code, text = gtc(t, "run", dir, "--data", emptyData(t, none, none), "--shuffle=false", "--progress", "plain", "--log-every", "1")
		if code != 0 || !strings.Contains(text, "loss none (empty)") || !strings.Contains(text, "2 empty") || !strings.Contains(text, "nothing was trained") {
			t.Errorf("%s: code %d\n%s", label(l), code, text)
		}
	}
}
