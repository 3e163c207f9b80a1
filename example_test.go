package gtc_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/gtc-compiler/gtc"
)

// What gtc makes of a model, before anything is compiled.
func ExampleInspect() {
	info, err := gtc.Inspect("docs/tour.onnx", gtc.Options{Import: gtc.Import{Batch: 8}})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range info.Inputs {
		fmt.Println("input", p.Name, p.DType, p.Dims)
	}
	for _, p := range info.Parameters {
		fmt.Println(p.Role, p.Name, p.DType, p.Dims)
	}
	// Output:
	// input x f32 [8 6]
	// parameter hidden.weight f32 [8 6]
	// parameter hidden.bias f32 [8]
	// parameter out.weight f32 [3 8]
	// parameter out.bias f32 [3]
}

// A folder with the programs of two ranks that share a batch of 8. With Build they are built as well.
func ExampleCompile() {
	dir, err := os.MkdirTemp("", "gtc-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	o := gtc.Defaults()
	o.Out = dir
	o.Import.Batch = 8
	o.Pass.DP = 2
	o.Pass.Loss = "cross_entropy"
	o.Pass.Optimizer = gtc.Optimizer{Name: "adamw", LR: 2e-3, WeightDecay: 0.01}
	res, err := gtc.Compile(context.Background(), "docs/tour.onnx", o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Manifest.Ranks, "ranks")

	o.Pass.Zero = 4
	_, err = gtc.Compile(context.Background(), "docs/tour.onnx", o)
	fmt.Println(err)
	// Output:
	// 2 ranks
	// --zero must be 0 (off), 1, 2 or 3, not 4
}

// Whether a layout computes what PyTorch computed in float64: the ranks are interpreted, and nothing is built.
func ExampleCheck() {
	o := gtc.Defaults()
	o.Pass.Loss, o.Pass.DP, o.Pass.TP = "cross_entropy", 2, 2
	report, err := gtc.Check(context.Background(), "docs/tour.onnx", gtc.Comparison{Compile: o, Reference: "docs/tour.npz", Simulate: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.OK)
	// Output:
	// true
}
