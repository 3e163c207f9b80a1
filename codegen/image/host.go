package image

import (
	"context"
	"errors"

	"github.com/gtc-compiler/gtc/codegen/rank"
)

// hostImage is a shared library with the kernels for this processor.
func hostImage(context.Context, []rank.Kernel, map[string][]byte) ([]byte, error) {
	return nil, errors.New("--arch host is not there yet")
}
