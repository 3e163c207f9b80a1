package rank

import (
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	_ "github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/fuse"
	"github.com/gtc-compiler/gtc/passes/memplan"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/schedule"
	"github.com/gtc-compiler/gtc/target/cpu"
)

// stage is one stage's forward and backward: what fwd.0 received, bwd.0 sends on, seen in other dims.
const stage = `mesh @m = [pp=2, mb=2]
func @fwd.0(%stash/x: f32[4,16] stash) {
  %x = recv {axis="pp", peer=1, tag="x", dType=f32, dims=[4,16]} : f32[4,16]
  return %stash/x <- %x
}
func @bwd.0(%stash/x: f32[4,16] stash, %stash/v: f32[8,8] stash) {
  %v = reshape %stash/x {dims=[8,8]} : f32[8,8]
  %v.sent = send %v {axis="pp", peer=1, tag="v"} : u8[0]
  return KEPT
}
`

// calls generates the call list of @bwd.0 of stage.
func calls(t *testing.T, text string) (*ir.Func, []call, error) {
	t.Helper()
	m, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c := &pass.Context{Module: m, Opt: &pass.Options{}, Slots: 2}
	for _, run := range []func(*pass.Context) error{fuse.Run, schedule.Run, memplan.Run} {
		if err := run(c); err != nil {
			t.Fatal(err)
		}
	}
	g := &generator{m: m, plan: c.Plan}
	g.machine = newHost(g, cpu.Target)
	list, err := g.function(m.Func("bwd.0"))
	return m.Func("bwd.0"), list, err
}

// A message leaves from the place that its own function writes: fwd.0 may receive the next micro-batch into %stash/x while
// the message is on its way.
func TestMessagesLeaveFromTheirOwnPlace(t *testing.T) {
	f, list, err := calls(t, strings.Replace(stage, "KEPT", "%stash/v <- %v", 1))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(c call) bool { return c.comm != nil && c.comm.Kind == "send" })
	if i < 0 {
		t.Fatalf("no send among %d calls", len(list))
	}
	send, own, other := list[i].comm, f.Param("stash/v"), f.Param("stash/x")
	if !send.Stays || send.Source != own.Offset || own.Offset == other.Offset || send.Peer != 1 || send.Bytes != 256 || send.Tensor != "v" {
		t.Errorf("sends %d bytes of %q at %d to %d, stays %v; the places are %d and %d", send.Bytes, send.Tensor, send.Source, send.Peer, send.Stays, own.Offset, other.Offset)
	}
	if want := []pass.Copy{{From: other.Offset, To: own.Offset, Bytes: 256}}; !slices.Equal(send.Before, want) {
		t.Errorf("copies %v before, want %v", send.Before, want)
	}
}

func TestMessagesOutsideTheStashAreRefused(t *testing.T) {
	_, _, err := calls(t, strings.Replace(stage, "KEPT", "", 1))
	if err == nil || !strings.Contains(err.Error(), "@bwd.0 sends %v, which it does not stash") {
		t.Error(err)
	}
}
