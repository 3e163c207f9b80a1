package ranks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// One program is every rank of every optimizer: the launcher's variables say which, else the name.
func TestARankKnowsItsNumber(t *testing.T) {
	text, err := json.Marshal(abi.Manifest{Ranks: 4, RankProgram: []int{0, 0, 1, 1}}) // two stages
	if err != nil {
		t.Fatal(err)
	}
	programs := []*program.Program{{Plan: text}, {Plan: text}, {Plan: text}, {Plan: text}}
	for _, c := range []struct {
		name, env     string
		rank, program int
		want          string
	}{
		{name: "out/bin/rank-3", rank: 3, program: 1},
		{name: "rank-1", rank: 1},
		{name: "bin/ranks", env: "RANK=2 WORLD_SIZE=4", rank: 2, program: 1},
		{name: "rank-2", env: "RANK=2 WORLD_SIZE=4 GTC_PROGRAM=1", rank: 2, program: 3},
		{name: "ranks", env: "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4", rank: 3, program: 1},
		{name: "ranks", env: "SLURM_PROCID=1 SLURM_NTASKS=4", rank: 1},
		{name: "ranks", env: "RANK=7 WORLD_SIZE=8"}, // connecting says that the job is too large
		{name: "ranks", want: "which of 4 ranks this is"},
		{name: "rank-x", env: "RANK=1", want: "which of 4 ranks this is"},
		{name: "rank-1", env: "RANK=2 WORLD_SIZE=4", want: "the program of rank 1, but the launcher says that it is rank 2"},
		{name: "rank-0", env: "GTC_PROGRAM=2", want: `GTC_PROGRAM is "2", but must be the number of a program, from 0 to 1`},
	} {
		env := map[string]string{}
		for _, kv := range strings.Fields(c.env) {
			k, v, _ := strings.Cut(kv, "=")
			env[k] = v
		}
		rank, program, err := WhoAmI(programs, c.name, func(k string) string { return env[k] })
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s %s: %v, want %q", c.name, c.env, err, c.want)
		case c.want == "" && (err != nil || rank != c.rank || program != c.program):
			t.Errorf("%s %s: rank %d, program %d, %v, want %d, %d", c.name, c.env, rank, program, err, c.rank, c.program)
		}
	}
}
