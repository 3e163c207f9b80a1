package main

import (
	"fmt"

	"github.com/spf13/pflag"
)

// gradCommFlags are those of how gradients travel between data-parallel ranks.
func (m *modelFlags) gradCommFlags(fs *pflag.FlagSet) {
	g := &m.opt.Pass.GradComm
	fs.StringVar(&g.DType, "grad-dtype", "fp32", "gradients travel between ranks as `TYPE`: fp32, bf16 or fp16")
	fs.StringVar(&g.Compress, "grad-compress", "", "compress gradients between ranks by `WAY`, with error feedback: powersgd (Vogels et al. 2019), topk or int8")
	fs.IntVar(&m.gradRank, "grad-rank", 4, "rank of powersgd's factors")
	fs.Float64Var(&m.gradFraction, "grad-fraction", 0.01, "fraction of the elements that topk sends")
	fs.IntVar(&g.Period, "local-sgd", 0, "local SGD: ranks train by themselves, and their parameters are averaged every `STEPS` steps; optimizer state stays each rank's own. 0 is off")
	fs.IntVar(&g.After, "post-local-sgd", 0, "`STEPS` of plain data parallelism before local SGD begins")
}

// gradComm completes the options of those flags, and refuses a flag that nothing reads.
func (m *modelFlags) gradComm() error {
	g := &m.opt.Pass.GradComm
	types := map[string]string{"fp32": "", "": "", "bf16": "bf16", "fp16": "f16"}
	d, ok := types[g.DType]
	if !ok {
		return fmt.Errorf("--grad-dtype must be fp32, bf16 or fp16, not %q", g.DType)
	}
	g.DType = d
	for _, of := range [][2]string{{"grad-rank", "powersgd"}, {"grad-fraction", "topk"}} {
		if m.set.Changed(of[0]) && g.Compress != of[1] {
			return fmt.Errorf("--%s needs --grad-compress %s", of[0], of[1])
		}
	}
	if g.Compress == "powersgd" {
		g.Rank = m.gradRank
	}
	if g.Compress == "topk" {
		g.Fraction = m.gradFraction
	}
	return nil
}
