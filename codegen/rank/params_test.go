package rank

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// A kernel has at most as many parameters as CUDA allows everywhere.
func TestParametersOfAKernel(t *testing.T) {
	for n, want := range map[int]bool{512: true, 513: false} {
		d := &gpu{g: &generator{}, number: map[string]int{}}
		args := make([]cuda.Ref, n)
		for i := range args {
			args[i].Arg = cuda.Nil
		}
		_, err := d.launches([]cuda.Kernel{{Name: "many", Args: args}}, nil, "model:1")
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "BUG: kernel many of model:1 has 4104 bytes") {
			t.Errorf("%d parameters: %v", n, err)
		}
	}
}
