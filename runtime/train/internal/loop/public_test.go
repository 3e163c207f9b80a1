package loop

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

var update = flag.Bool("update", false, "rewrite testdata/public.golden")

// Flags, JSON fields and exit codes are public: scripts rely on them, so a change must be seen.
func TestPublicNames(t *testing.T) {
	m := newToy()
	dir, data := m.folder(t, 50)
	var b strings.Builder
	b.WriteString(m.ok(t, dir, "--help").out)
	o := m.ok(t, dir, "--data", data, "--steps", "4", "--log-every", "4", "--eval-data", data, "--json")
	b.WriteString("\nJSON lines\n")
	for _, line := range strings.Split(strings.TrimSpace(o.out), "\n") {
		e := map[string]any{}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "  %v: %s\n", e["event"], strings.Join(slices.Sorted(maps.Keys(e)), " "))
	}
	fmt.Fprintf(&b, "\nexit codes: ok %d, failed %d, usage %d, peer %d, signal %d+n\n", ranks.ExitOK, ranks.ExitFailed, ranks.ExitUsage, ranks.ExitPeer, ranks.ExitSignal)
	const golden = "testdata/public.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the public names changed (go test ./runtime/train/internal/loop -update accepts that):\n%s", b.String())
	}
}
