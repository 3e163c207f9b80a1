package loop

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device/cpu"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// weightsFile holds the initial values, in the compiled folder.
const weightsFile = abi.Weights

// loadWeights fills every tensor that has an initial value with this rank's part of it. The others start as zeros.
func (s *session) loadWeights() error {
	var file *safetensors.File
	for i := range s.Plan.Prog.Tensors {
		t := &s.Plan.Prog.Tensors[i]
		if t.Init == "" {
			continue
		}
		if file == nil {
			var err error
			if file, err = safetensors.Open(filepath.Join(s.cfg.dir, weightsFile)); err != nil {
				return ranks.Usagef("the initial weights cannot be read (is --dir the compiled folder?): %w", err)
			}
			defer file.Close()
		}
		w, err := file.Tensor(t.Init)
		if err != nil && s.Plan.Abstract && s.cfg.randomWeights {
			err = s.put(t, randomWeights(t, s.Plan.Whole(t)))
			if err != nil {
				return err
			}
			continue
		}
		if err != nil && s.Plan.Abstract {
			if s.cfg.resume == "" && s.cfg.initFrom == "" || s.cfg.fixedBatch != "" || !program.Saved(t) {
				return s.weightless(t)
			}
			s.absent = t // a checkpoint has it
			continue
		}
		if err != nil {
			return ranks.Usage(err)
		}
		if w.Elem() != stored(t.DType) || !slices.Equal(w.Shape, s.Plan.InFiles(t)) {
			return ranks.Usagef("%s: %q is %s%v, but the program needs %s%v: compile again", file.Path(), t.Init, w.Elem(), w.Shape, t.DType, s.Plan.InFiles(t))
		}
		if err := s.put(t, w.Data); err != nil {
			return err
		}
	}
	return nil
}

// weightless says that the folder was compiled without the contents of t.
func (s *session) weightless(t *abi.Tensor) error {
	return ranks.Usagef("the folder has no weights: it was compiled with --abstract-weights, %q %s%v has no contents; start from a checkpoint with --resume=PATH or --init-from PATH, or from --random-weights, "+
		"or compile again with the model's data", t.Name, t.DType, s.Plan.Whole(t))
}

// stored is the type in which a safetensors file holds elements of a type: those of 4 and 2 bits, which the arena has a byte
// each for, are bytes there too.
func stored(dtype string) string {
	switch dtype {
	case "i4", "i2":
		return "i8"
	case "u4", "u2", "f4_e2m1":
		return "u8"
	}
	return dtype
}

// put copies this rank's part of a whole tensor into the arena.
func (s *session) put(t *abi.Tensor, data []byte) error {
	from := program.Region{Data: data, Dims: s.Plan.Whole(t), At: s.Plan.Start(t, s.Plan.Rank, 0)}
	if len(data) == t.Bytes { // all of it: no need of a copy
		return s.m.Write(t.Offset, data)
	}
	return s.m.Fill(t, func(b []byte) error {
		program.CopyBox(program.Region{Data: b, Dims: t.Dims}, from, t.Dims, program.ElemSize(t.DType))
		return nil
	})
}

// describe prints what GTC_DEBUG asks for at the start.
func (s *session) describe() {
	w := s.watch
	if w.Debug == 0 {
		return
	}
	x := s.Plan
	fmt.Fprintf(w.Out, "rank %d of %d, mesh %s, program %s: %s, batch %d = %s x %s x %d, arena %d bytes %v, %s on %s\n",
		x.Rank, x.Ranks, x.Grid, x.Prog.Package, x.Model, x.Train.Batch, printable.Count(x.Train.DP, "rank"), printable.Count(x.Train.Microbatches, "micro-batch"), x.Train.RankBatch,
		x.Prog.ArenaBytes, x.Prog.Segments, printable.Count(s.threads, "thread"), cpu.Model())
	if s.m.Local == nil {
		i := s.m.Dev.Info()
		fmt.Fprintf(w.Out, "  device %d: %s, %s, %.1f GiB, %s, kernels for %s, %d bytes with what the run-time needs\n", i.Number, i.Name, i.Arch,
			float64(i.Memory)/(1<<30), i.Driver, i.Image, s.m.RuntimeArea.End)
	}
	for i := range x.Prog.Funcs {
		f := &x.Prog.Funcs[i]
		fmt.Fprintf(w.Out, "  @%s: %d ops, %.3g GFLOP, inputs %v\n", f.Name, f.Ops, float64(f.Flops)/1e9, f.Inputs)
	}
	if w.Debug < 2 {
		return
	}
	list := slices.Clone(x.Prog.Tensors)
	slices.SortStableFunc(list, func(a, b abi.Tensor) int { return a.Offset - b.Offset })
	for _, t := range list {
		fmt.Fprintf(w.Out, "  %12d %12d %-7s %s%v %s\n", t.Offset, t.Bytes, t.Role, t.DType, t.Dims, t.Name)
	}
}
