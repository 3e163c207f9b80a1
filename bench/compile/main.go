// Command compile measures what compiling costs as models get deeper: it repeats the last layer of gpt2_tiny and compiles
// each result, once per round, the depths in turn.
//
//	go run ./bench/compile [-layers 2,12,24,48] [-rounds 3] [-build] [-passes] MODEL.onnx
//
// MODEL.onnx is gpt2_tiny as PyTorch's dynamo exporter writes it, optimized or not. Times are the least of all rounds, in
// milliseconds: import and passes; generating and writing the folder, its run-time and weights; with -build, building
// bin/rank-0 with kernels that no cache holds. Kernels and the bytes of C say what the C compiler has to do, which does not depend on depth.
// -passes adds a table of the passes. -cpuprofile FILE writes a profile of gtc itself, without the build.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/bench/compile/deepen"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// fresh counts the builds of this run.
var fresh int

// depth is one depth and the least times of it so far.
type depth struct {
	layers              int
	path                string
	lower, write, build time.Duration
	passes              []pass.Time
	kernels, code, ops  int
}

func main() {
	layers := flag.String("layers", "2,12,24,48", "depths to compile")
	rounds := flag.Int("rounds", 3, "rounds; each compiles every depth once")
	build := flag.Bool("build", false, "also build the programs")
	table := flag.Bool("passes", false, "print the time of each pass")
	profile := flag.String("cpuprofile", "", "write a profile to `FILE`")
	flag.Parse()
	debug.SetGCPercent(400) // as gtc does
	if err := bench(*layers, *rounds, *build, *table, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "bench/compile:", err)
		os.Exit(1)
	}
}

func bench(layers string, rounds int, build, table bool, profile string) error {
	if flag.NArg() != 1 {
		return fmt.Errorf("name the model: go run ./bench/compile MODEL.onnx")
	}
	dir, err := os.MkdirTemp("", "gtc-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	depths, err := models(dir, flag.Arg(0), layers)
	if err != nil {
		return err
	}
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for range rounds {
		for _, d := range depths {
			if err := d.compile(filepath.Join(dir, "out"), build); err != nil {
				return fmt.Errorf("%d layers: %w", d.layers, err)
			}
		}
	}
	report(depths, build)
	if table {
		reportPasses(depths)
	}
	return nil
}

// models writes the model of each depth.
func models(dir, path, layers string) ([]*depth, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []*depth
	for _, s := range strings.Split(layers, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2 {
			return nil, fmt.Errorf("-layers: %q is not a depth of at least 2", s)
		}
		text, err := deepen.Repeat(data, deepen.GPT2, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		d := &depth{layers: n, path: filepath.Join(dir, fmt.Sprintf("layers%d.onnx", n))}
		if err := os.WriteFile(d.path, text, 0o666); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// compile compiles a depth once and keeps the least times.
func (d *depth) compile(out string, build bool) error {
	o := &compiler.Options{Model: d.path, Out: out}
	o.Import.Batch = 4
	o.Pass = pass.Options{Loss: "cross_entropy", IgnoreIndex: -100, ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adamw", LR: 1e-3, WeightDecay: 0.1}}
	res, err := compiler.Run(context.Background(), o)
	if err != nil {
		return err
	}
	code, err := os.Stat(filepath.Join(out, "prog0", "kernels.c"))
	if err != nil {
		return err
	}
	d.kernels, d.code, d.ops = res.Manifest.Programs[0].Kernels, int(code.Size()), 0
	for _, f := range res.Manifest.Programs[0].Funcs {
		d.ops += f.Ops
	}
	least(&d.lower, res.LowerTime)
	least(&d.write, res.BuildTime)
	if d.passes == nil {
		d.passes = res.Context.Times
	}
	for i := range d.passes {
		least(&d.passes[i].Took, res.Context.Times[i].Took)
	}
	if build {
		// A learning rate of its own makes kernels that the Go build cache has not seen: as on a model's first compilation,
		// the C compiler has its work to do, and only the run-time is there already.
		fresh++
		o.Build, o.Pass.Optimizer.LR = true, 1e-3*(1+1e-5*float64(os.Getpid())+1e-4*float64(fresh))
		if res, err = compiler.Run(context.Background(), o); err != nil {
			return err
		}
		least(&d.build, res.BuildTime)
	}
	return nil
}

func least(at *time.Duration, took time.Duration) {
	if *at == 0 || took < *at {
		*at = took
	}
}

func report(depths []*depth, build bool) {
	fmt.Printf("%6s %7s %8s %9s %8s %8s %8s", "layers", "ops", "kernels", "C bytes", "lower", "write", "ratio")
	if build {
		fmt.Printf(" %8s %8s", "+build", "ratio")
	}
	fmt.Println()
	first := depths[0]
	for _, d := range depths {
		fmt.Printf("%6d %7d %8d %9d %8.1f %8.1f %8.2f", d.layers, d.ops, d.kernels, d.code, ms(d.lower), ms(d.write),
			ms(d.lower+d.write)/ms(first.lower+first.write))
		if build {
			fmt.Printf(" %8.1f %8.2f", ms(d.build), ms(d.lower+d.build)/ms(first.lower+first.build))
		}
		fmt.Println()
	}
}

func reportPasses(depths []*depth) {
	fmt.Printf("\n%-14s", "pass")
	for _, d := range depths {
		fmt.Printf(" %8d", d.layers)
	}
	fmt.Println(" layers, ms")
	for i, p := range depths[0].passes {
		fmt.Printf("%-14s", p.Pass)
		for _, d := range depths {
			fmt.Printf(" %8.1f", ms(d.passes[i].Took))
		}
		fmt.Println()
	}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }
