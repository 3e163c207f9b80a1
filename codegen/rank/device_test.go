package rank

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/fuse"
	"github.com/gtc-compiler/gtc/passes/memplan"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/schedule"
	"github.com/gtc-compiler/gtc/target"
	"github.com/gtc-compiler/gtc/target/cuda"
	"github.com/gtc-compiler/gtc/target/launch"
)

// other is a target with a device that this package has never heard of, whose kernels are those of target cuda.
type other struct{ target.Device }

func (o other) Traits() *target.Traits {
	t := *o.Device.Traits()
	t.Name, t.Title = "other", "OTHER"
	return &t
}

func (other) Text([]launch.Function) (file, text string) { return "kernels.other", "text\n" }

func (other) Runtime() target.Runtime {
	return target.Runtime{Open: "runtime/device/other", Link: []string{"distributed/comm/other"}, Params: 64}
}

// TestOtherDevice: programs of a target with a device are printed by what it says of itself, and nothing of another's is in them.
func TestOtherDevice(t *testing.T) {
	was := pass.Targets
	defer func() { pass.Targets = was }()
	pass.Targets = append(was[:len(was):len(was)], other{cuda.Target})
	m, err := ir.Parse("func @step(%x: f32[64], %y: f32[64]) {\n  %a = mul %x, %y : f32[64]\n  %b = exp %a : f32[64]\n  return out0=%b\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	c := &pass.Context{Module: m, Opt: &pass.Options{Target: "other"}}
	for _, run := range []func(*pass.Context) error{fuse.Run, schedule.Run, memplan.Run} {
		if err := run(c); err != nil {
			t.Fatal(err)
		}
	}
	src, err := Generate("prog0", Target{Options: c.Opt}, Program{Module: m, Plan: c.Plan})
	if err != nil {
		t.Fatal(err)
	}
	text := string(src.Files["program.go"])
	for want, is := range map[string]bool{`"github.com/gtc-compiler/gtc/runtime/device/other"`: true, `_ "github.com/gtc-compiler/gtc/distributed/comm/other"`: true, "other.Open": true, "cuda": false, "nccl": false} {
		if strings.Contains(text, want) != is {
			t.Errorf("%s is in the program: %v\n%s", want, !is, text)
		}
	}
	if len(src.Functions) != 1 || string(src.Files["kernels.other"]) != "text\n" || src.Files["kernels.cu"] != nil {
		t.Errorf("%d kernels, files %v", len(src.Functions), len(src.Files))
	}
}
