package image

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/gtc-compiler/gtc/kernels/cuda/standin"
	"github.com/gtc-compiler/gtc/target/launch"
)

// CheckVariable names the environment variable that, when set, has kernels for this processor compiled with checks.
const CheckVariable = "GTC_HOST_CHECK"

// hostImage is a shared library with the kernels for this processor.
func (b *Builder) hostImage(ctx context.Context, kernels []launch.Function, strict bool) ([]byte, error) {
	var text strings.Builder
	for _, h := range includes(kernels) {
		fmt.Fprintf(&text, "#include %q\n", h)
	}
	for _, k := range kernels {
		fmt.Fprintf(&text, "\n%s\n", k.Text)
	}
	return standin.Image(ctx, text.String(), standin.Options{Checked: b.o.Getenv(CheckVariable) != "", Strict: strict})
}

// standInDriver is the library with the functions of the CUDA driver that runs images for this processor.
func standInDriver(ctx context.Context) ([]byte, error) {
	path, err := standin.Driver(ctx)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}
