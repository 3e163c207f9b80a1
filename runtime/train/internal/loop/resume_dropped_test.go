package loop

import (
	"testing"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// TestDroppedState: state that the checkpoint has and no stage of the job keeps is told, the rest is not.
func TestDroppedState(t *testing.T) {
	stage := func(names ...string) (p abi.Program) {
		for _, n := range names {
			p.Tensors = append(p.Tensors, abi.Tensor{Name: n})
		}
		return p
	}
	x := &program.Plan{Stages: 2}
	x.Programs = []abi.Program{stage("a", "optim/exp_avg/a"), stage("b", "optim/exp_avg/b")}
	if text := dropped(x, []string{"a", "b", "c", "optim/exp_avg/a", "optim/exp_avg/b"}); text != "" {
		t.Errorf("nothing is dropped, told: %s", text)
	}
	got := dropped(x, []string{"optim/exp_avg/b", "optim/error/a", "optim/error/b", "optim/powersgd_q/a"})
	want := "state of the checkpoint that this program does not keep is dropped: 2 of optim/error, 1 of optim/powersgd_q (what gradient compression had yet to send)"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	x.Programs[1].ArenaBytes = 7
	if x.LargestArena() != 7 {
		t.Errorf("the largest arena is %d, not 7", x.LargestArena())
	}
}

// TestMayLack: a checkpoint may lack what a run keeps beside the model, but no parameter, though it be called the same.
func TestMayLack(t *testing.T) {
	for _, name := range []string{abi.EmptySteps, abi.NoiseSeed, abi.LossScale, abi.SkippedSteps} {
		if _, ok := mayLack(&abi.Tensor{Name: name, Role: abi.RoleState}); !ok {
			t.Errorf("state %s must be in a checkpoint", name)
		}
		for _, role := range []abi.Role{abi.RoleParam, abi.RoleBuffer} {
			if note, ok := mayLack(&abi.Tensor{Name: name, Role: role}); ok {
				t.Errorf("%s %s of the model keeps its initial values when a checkpoint lacks it: %q", role, name, note)
			}
		}
	}
	if _, ok := mayLack(&abi.Tensor{Name: abi.StepCount, Role: abi.RoleState}); ok {
		t.Error("a checkpoint may lack the count of steps")
	}
}
