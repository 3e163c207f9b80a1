package precision

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

// The pass changes what values are, by their rounding: each case is compared within that of half precision.
func TestGolden(t *testing.T) {
	passtest.Golden(t, "precision", Run, irtest.Options{})
}
