package ranks

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// WhoAmI finds the number of a rank that was started as name, and its program.
func WhoAmI(programs []*program.Program, name string, getenv func(string) string) (rank, program int, err error) {
	var plan struct {
		Ranks       int
		RankProgram []int `json:"rank_program"`
	}
	if err := json.Unmarshal(programs[0].Plan, &plan); err != nil {
		return 0, 0, fmt.Errorf("BUG: the plan in this program is damaged: %w", err)
	}
	if len(plan.RankProgram) == 0 {
		return 0, 0, errors.New("BUG: the plan in this program lists no ranks")
	}
	rank, named := rankOfName(name)
	switch n, numbered := comm.RankFromEnv(getenv); {
	case numbered && named && n != rank && n < plan.Ranks:
		return 0, 0, fmt.Errorf("this is the program of rank %d, but the launcher says that it is rank %d: bin/ranks is the program of any rank", rank, n)
	case numbered:
		rank = n
	case !named && plan.Ranks > 1:
		return 0, 0, fmt.Errorf("no launcher says which of %d ranks this is (RANK is not set): \"gtc run\" starts them all; by hand, start bin/rank-0 to bin/rank-%d",
			plan.Ranks, plan.Ranks-1)
	}
	if rank >= len(plan.RankProgram) {
		rank = 0 // of a job that is larger than the plan, which is told when the ranks join
	}
	stages := 0
	for _, p := range plan.RankProgram {
		stages = max(stages, p+1)
	}
	program = plan.RankProgram[rank]
	if s := getenv(abi.ProgramVariable); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n*stages+program >= len(programs) {
			return 0, 0, fmt.Errorf("%s is %q, but must be the number of a program, from 0 to %d", abi.ProgramVariable, s, len(programs)/stages-1)
		}
		program += n * stages
	}
	return rank, program, nil
}

// rankOfName is 3 for bin/rank-3.
func rankOfName(name string) (int, bool) {
	s, ok := strings.CutPrefix(strings.TrimSuffix(filepath.Base(name), ".exe"), "rank-")
	n, err := strconv.Atoi(s)
	return max(n, 0), ok && err == nil && n >= 0
}
