package cuda

import (
	"fmt"
	"os"
	"time"

	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// compile compiles kernels at the start of a program, for the device that is there.
func compile(text []byte, arch string, log func(string, ...any)) ([]byte, error) {
	library, err := nvrtc.Open(nvrtc.Candidates("", os.Getenv))
	if err != nil {
		return nil, fmt.Errorf("its source cannot be compiled here: %w", err)
	}
	begin := time.Now()
	cubin, _, err := library.Compile(nvrtc.Source{Name: "kernels.cu", Text: string(text)}, arch)
	if err != nil {
		return nil, err
	}
	if log != nil {
		log("the kernels were compiled for %s in %v: gtc compile --arch %s does it once for all", arch, time.Since(begin).Round(10*time.Millisecond), arch)
	}
	return cubin, nil
}
