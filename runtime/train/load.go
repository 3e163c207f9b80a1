package train

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device/cpu"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// weightsFile holds the initial values, in the compiled folder.
const weightsFile = abi.Weights

// loadWeights fills every tensor that has an initial value with this rank's part of it. The others start as zeros.
func (s *session) loadWeights() error {
	var file *safetensors.File
	for i := range s.plan.prog.Tensors {
		t := &s.plan.prog.Tensors[i]
		if t.Init == "" {
			continue
		}
		if file == nil {
			var err error
			if file, err = safetensors.Open(filepath.Join(s.cfg.dir, weightsFile)); err != nil {
				return usagef("the initial weights cannot be read (is --dir the compiled folder?): %w", err)
			}
			defer file.Close()
		}
		w, err := file.Tensor(t.Init)
		if err != nil && s.plan.Abstract && s.cfg.randomWeights {
			err = s.put(t, randomWeights(t, s.plan.whole(t)))
			if err != nil {
				return err
			}
			continue
		}
		if err != nil && s.plan.Abstract {
			if s.cfg.resume == "" && s.cfg.initFrom == "" || s.cfg.fixedBatch != "" || !saved(t) {
				return s.weightless(t)
			}
			s.absent = t // a checkpoint has it
			continue
		}
		if err != nil {
			return usage(err)
		}
		if w.Elem() != stored(t.DType) || !slices.Equal(w.Shape, s.plan.inFiles(t)) {
			return usagef("%s: %q is %s%v, the program wants %s%v: compile again", file.Path(), t.Init, w.Elem(), w.Shape, t.DType, s.plan.inFiles(t))
		}
		if err := s.put(t, w.Data); err != nil {
			return err
		}
	}
	return nil
}

// weightless says that the folder was compiled without the contents of t.
func (s *session) weightless(t *abi.Tensor) error {
	return usagef("the folder has no weights: it was compiled with --abstract-weights, %q %s%v has no contents; start from a checkpoint with --resume=PATH or --init-from PATH, or from --random-weights, "+
		"or compile again with the model's data", t.Name, t.DType, s.plan.whole(t))
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
	from := region{data: data, dims: s.plan.whole(t), at: s.plan.start(t, s.plan.rank, 0)}
	if len(data) == t.Bytes { // all of it: no need of a copy
		return s.m.write(t.Offset, data)
	}
	return s.m.fill(t, func(b []byte) error {
		copyBox(region{data: b, dims: t.Dims}, from, t.Dims, elemSizes[t.DType])
		return nil
	})
}

// describe prints what GTC_DEBUG asks for at the start.
func (s *session) describe() {
	w := s.watch
	if w.debug == 0 {
		return
	}
	x := s.plan
	fmt.Fprintf(w.out, "rank %d of %d, mesh %s, program %s: %s, batch %d = %d ranks x %d micro-batches x %d, arena %d bytes %v, %d threads on %s\n",
		x.rank, x.Ranks, x.mesh, x.prog.Package, x.Model, x.Train.Batch, x.Train.DP, x.Train.Microbatches, x.Train.RankBatch,
		x.prog.ArenaBytes, x.prog.Segments, s.threads, cpu.Model())
	if s.m.local == nil {
		i := s.m.dev.Info()
		fmt.Fprintf(w.out, "  device %d: %s, %s, %.1f GiB, CUDA %s, kernels for %s, %d bytes with what the run-time needs\n", i.Number, i.Name, i.Arch,
			float64(i.Memory)/(1<<30), i.Driver, i.Image, s.m.behind.end)
	}
	for i := range x.prog.Funcs {
		f := &x.prog.Funcs[i]
		fmt.Fprintf(w.out, "  @%s: %d ops, %.3g GFLOP, inputs %v\n", f.Name, f.Ops, float64(f.Flops)/1e9, f.Inputs)
	}
	if w.debug < 2 {
		return
	}
	list := slices.Clone(x.prog.Tensors)
	slices.SortStableFunc(list, func(a, b abi.Tensor) int { return a.Offset - b.Offset })
	for _, t := range list {
		fmt.Fprintf(w.out, "  %12d %12d %-7s %s%v %s\n", t.Offset, t.Bytes, t.Role, t.DType, t.Dims, t.Name)
	}
}
