package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/ir"
)

// TestOwnFault: a bug of gtc is said to be one, wherever it was found, and is no mistake of the user's by its exit code.
func TestOwnFault(t *testing.T) {
	for text, c := range map[string]struct {
		err  error
		bug  bool
		code int
	}{
		"a pass":    {&ran{ir.Errorf(ir.Loc{}, "BUG: @step has no result count")}, true, exitFailed},
		"a driver":  {&ran{compiler.Input(errors.New("BUG: the plan is damaged"))}, true, exitFailed},
		"the user":  {&ran{compiler.Input(errors.New("--zero 2 needs --dp of at least 2"))}, false, exitUsage},
		"a machine": {&ran{errors.New("disk full")}, false, exitFailed},
	} {
		var b strings.Builder
		printError(&b, &cobra.Command{Use: "gtc"}, c.err)
		if strings.Contains(b.String(), "please report it") != c.bug || exitCode(c.err) != c.code {
			t.Errorf("%s: exit code %d, want %d, and\n%s", text, exitCode(c.err), c.code, &b)
		}
	}
}
