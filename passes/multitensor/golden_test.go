package multitensor

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

func TestGolden(t *testing.T) {
	passtest.Golden(t, "multitensor", Run, irtest.Options{})
}
