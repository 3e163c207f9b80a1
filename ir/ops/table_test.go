package ops_test

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// TestTable freezes what gtc ops prints: a rule that goes missing shows here.
func TestTable(t *testing.T) { irtest.Golden(t, "testdata/ops.txt", ops.Table()) }
