package rank

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/target/cuda"
	"github.com/gtc-compiler/gtc/target/launch"
)

// A kernel has at most as many parameters as its target allows.
func TestParametersOfAKernel(t *testing.T) {
	for n, want := range map[int]bool{512: true, 513: false} {
		d := newDevice(&generator{}, cuda.Target, Target{})
		args := make([]launch.Ref, n)
		for i := range args {
			args[i].Arg = launch.Nil
		}
		_, err := d.launches([]launch.Kernel{{Name: "many", Args: args}}, nil, "model:1")
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "BUG: kernel many of model:1 has 4104 bytes") {
			t.Errorf("%d parameters: %v", n, err)
		}
	}
}
