package memplan

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/passes/schedule"
)

func TestGolden(t *testing.T) {
	scheduled := func(c *pass.Context) error { // the files hold modules as fuse leaves them
		if err := schedule.Run(c); err != nil {
			return err
		}
		return Run(c)
	}
	passtest.Golden(t, "memplan", scheduled, irtest.Options{})
}
