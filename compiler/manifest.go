package compiler

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/compiler/internal/ahead"
	"github.com/gtc-compiler/gtc/compiler/internal/plan"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// manifest describes compiled programs, which share one package. Mesh and training are those of the first.
func manifest(o *Options, src *rank.Source, results ...*Result) (*abi.Manifest, error) {
	sum, err := fileSum(o.Model)
	if err != nil {
		return nil, err
	}
	m := results[0].Module
	out := &abi.Manifest{Version: abi.Version, Gtc: build.Version, Model: filepath.Base(o.Model), ModelSum: sum, Target: o.Pass.Traits().Name,
		Ranks: m.Mesh.Ranks(), Options: o.Flags, Train: plan.Train(&o.Pass, m, results[0].Context.Loss), Outputs: results[0].Outputs, Abstract: o.Import.Abstract, Files: map[string]string{}}
	for name, text := range src.Files {
		out.Files["prog0/"+name] = SourceSum(text)
	}
	for _, a := range m.Mesh.Axes {
		if a.Name != mesh.TimeAxis {
			out.Mesh = append(out.Mesh, a)
		}
	}
	out.Train.CrossSample, out.Train.Noise, out.Train.SingleValueStatistics = results[0].Context.CrossSample, results[0].Context.Noise, results[0].Context.SingleValueStatistics
	out.Train.BatchDims = results[0].Context.BatchDims
	out.RankProgram = make([]int, out.Ranks)
	for r := range out.RankProgram {
		out.RankProgram[r] = m.Mesh.Coord(r, mesh.PipelineAxis)
	}
	if c := results[0].Context.Programs()[0]; c.Actions != nil {
		out.Train.Data = plan.Data(m, results[0].Context.Programs())
		ahead.Mark(out.Train.Data, results[0].ahead)
	}
	for _, r := range results {
		first := len(out.Programs)
		for _, c := range r.Context.Programs() {
			p := plan.Program(c, r.Context)
			p.Package, p.Kernels, p.Collectives = "prog0", src.Kernels, rank.Collectives(c.Module)
			ahead.Mark(p.Tensors, r.ahead)
			out.Programs = append(out.Programs, p)
		}
		hash := ProgramsHash(src.Files, out, out.Programs[first:])
		for i := range out.Programs[first:] {
			out.Programs[first+i].Hash = hash
		}
	}
	return out, nil
}

// ProgramsHash covers what the ranks of a job must agree on: the code of the programs' package, the mesh, and all that the
// manifest says of the programs.
func ProgramsHash(files map[string][]byte, m *abi.Manifest, programs []abi.Program) string {
	h := sha256.New()
	for _, n := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s %d\n", n, len(files[n]))
		h.Write(files[n])
	}
	programs = slices.Clone(programs)
	for i := range programs {
		programs[i].Hash = ""
	}
	if err := json.NewEncoder(h).Encode([]any{m.Mesh, m.RankProgram, m.Train, programs}); err != nil {
		panic("BUG: the manifest does not print: " + err.Error())
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// SourceSum is the hash of one source, in hex.
func SourceSum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}
