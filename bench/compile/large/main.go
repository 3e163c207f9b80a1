// Command large measures what compiling a very large GPT costs, without its weights (--abstract-weights):
//
//	go run ./bench/compile/large [-dp 16] [-tp 8] [-pp 8] [-microbatches 8] [-zero 0] [-target cuda] [-precision bf16] [-build] [-passes]
//
// The model is GPT-3's largest, 175 billion parameters; -layers, -width, -heads, -vocab and -seq make others. It prints the
// time of import and passes and of writing (and building) the folder, processor seconds and the largest resident set, of gtc and
// of what it started, and what came out: ranks, distinct programs, kernels, ops and bytes. -cpuprofile and -memprofile write profiles.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/gtc-compiler/gtc/bench/compile/gpt"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// options are the command's flags.
type options struct {
	shape          gpt.Config
	pass           pass.Options
	samples        int // of a rank and micro-batch
	build, passes  bool
	cpu, mem, keep string
}

func main() {
	o := &options{shape: gpt.GPT3}
	s, p := &o.shape, &o.pass
	flag.IntVar(&s.Layers, "layers", s.Layers, "layers")
	flag.IntVar(&s.Width, "width", s.Width, "width")
	flag.IntVar(&s.Heads, "heads", s.Heads, "heads of attention")
	flag.IntVar(&s.Vocab, "vocab", s.Vocab, "size of the vocabulary")
	flag.IntVar(&s.Seq, "seq", s.Seq, "tokens of a sample")
	flag.BoolVar(&s.Separate, "separate", false, "query, key and value are three layers")
	flag.BoolVar(&s.Tied, "tied", false, "the head is tied to the embedding")
	flag.IntVar(&o.samples, "samples", 1, "samples of each rank and micro-batch")
	flag.IntVar(&p.DP, "dp", 16, "data-parallel ranks")
	flag.IntVar(&p.TP, "tp", 1, "tensor-parallel ranks")
	flag.IntVar(&p.PP, "pp", 1, "pipeline stages")
	flag.IntVar(&p.Microbatches, "microbatches", 8, "micro-batches")
	flag.IntVar(&p.Zero, "zero", 0, "ZeRO stage")
	flag.BoolVar(&p.SP, "sp", false, "sequence parallelism")
	flag.StringVar(&p.Pipeline, "schedule", "1f1b", "schedule of the pipeline")
	flag.StringVar(&p.Target, "target", "", "what the ranks run on")
	flag.StringVar(&p.Precision, "precision", "fp32", "fp32, bf16, fp16 or tf32")
	flag.BoolVar(&o.build, "build", false, "also build the programs")
	flag.BoolVar(&o.passes, "passes", false, "print the time of each pass")
	flag.StringVar(&o.cpu, "cpuprofile", "", "write a profile of gtc's time to `FILE`")
	flag.StringVar(&o.mem, "memprofile", "", "write a profile of gtc's memory to `FILE`")
	flag.StringVar(&o.keep, "out", "", "keep what is compiled in `FOLDER`")
	flag.Parse()
	debug.SetGCPercent(400)                            // as gtc does
	if t, err := pass.TargetOf(p.Target); err == nil { // passes.Run tells the error
		p.Arch = t.Traits().Chips
	}
	if err := measure(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/compile/large:", err)
		os.Exit(1)
	}
}

func measure(o *options) error {
	dir, err := os.MkdirTemp("", "gtc-large-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data, err := gpt.Model(o.shape)
	if err != nil {
		return err
	}
	c := &compiler.Options{Model: filepath.Join(dir, "gpt.onnx"), Out: filepath.Join(dir, "out"), Pass: o.pass, Build: o.build}
	if o.keep != "" {
		c.Out = o.keep
	}
	if err := os.WriteFile(c.Model, data, 0o666); err != nil {
		return err
	}
	c.Import.Abstract = true
	c.Import.Batch = o.samples * o.pass.DP * o.pass.Microbatches
	c.Pass.Loss, c.Pass.IgnoreIndex, c.Pass.ClipNorm = "cross_entropy", -100, 1
	c.Pass.Optimizer = pass.Optimizer{Name: "adamw", LR: 1e-4, WeightDecay: 0.1}
	stop, err := profiled(o.cpu)
	if err != nil {
		return err
	}
	start := time.Now()
	res, err := compiler.Run(context.Background(), c)
	wall := time.Since(start)
	stop()
	if err != nil {
		return err
	}
	if err := heap(o.mem); err != nil {
		return err
	}
	report(o, res, wall)
	return nil
}

// profiled starts a profile; the function it returns ends it.
func profiled(path string) (func(), error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}

func heap(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	runtime.GC()
	return pprof.WriteHeapProfile(f)
}

func report(o *options, res *compiler.Result, wall time.Duration) {
	m := res.Manifest
	fmt.Printf("model      %d layers, %d wide, %d heads: %.1f billion parameters\n", o.shape.Layers, o.shape.Width, o.shape.Heads,
		float64(o.shape.Parameters())/1e9)
	kernels, ops, arena := 0, 0, 0
	for _, p := range m.Programs {
		kernels, arena = max(kernels, p.Kernels), max(arena, p.ArenaBytes)
		for _, f := range p.Funcs {
			ops += f.Ops
		}
	}
	fmt.Printf("compiled   %d ranks, %d distinct programs, %d kernels, %d ops, arena of %.1f GiB at most\n", m.Ranks, len(m.Programs), kernels,
		ops, float64(arena)/(1<<30))
	fmt.Printf("time       %.1f s: import and passes %.1f s, writing and building %.1f s\n", wall.Seconds(), res.LowerTime.Seconds(), res.BuildTime.Seconds())
	usage("gtc", syscall.RUSAGE_SELF)
	if o.build {
		usage("tools", syscall.RUSAGE_CHILDREN)
	}
	fmt.Printf("written    %.1f MiB\n", float64(written(res.Dir))/(1<<20))
	if o.passes {
		for _, t := range res.Context.Times {
			fmt.Printf("  %-12s %8.1f ms\n", t.Pass, float64(t.Took)/1e6)
		}
	}
}

// usage prints what this process, or the largest of those it started, has used.
func usage(name string, who int) {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) == nil {
		fmt.Printf("%-10s %.1f s user, %.1f s system, largest resident set %.2f GiB\n", name, time.Duration(u.Utime.Nano()).Seconds(),
			time.Duration(u.Stime.Nano()).Seconds(), float64(u.Maxrss)/(1<<20))
	}
}

// written is the size of a folder's files.
func written(dir string) int64 {
	var sum int64
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if st, err := d.Info(); err == nil && st.Mode().IsRegular() {
			sum += st.Size()
		}
		return nil
	})
	return sum
}
