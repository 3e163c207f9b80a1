package topo

import (
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// TestCost checks predictions worked out by hand: 1 us a message, 1 GB/s, four ranks.
func TestCost(t *testing.T) {
	l := Link{Alpha: 1e-6, Beta: 1e9}
	for _, c := range []struct {
		kind     string
		n, bytes int
		want     Cost
	}{
		{"all_reduce", 4, 4000, Cost{4e-6 + 6e-6, 6000, "tree"}}, // 2 log2 4 messages, 2 * 3/4 * 4 us
		{"all_reduce", 4, 4, Cost{2e-6 + 8e-9, 8, "tree"}},       // small: whole messages, log2 4 of them
		{"all_reduce", 2, 4000, Cost{1e-6 + 4e-6, 4000, "tree"}}, // one exchange of the whole is as many bytes as two of half
		{"reduce_scatter", 4, 4000, Cost{2e-6 + 3e-6, 3000, "tree"}},
		{"all_gather", 2, 4000, Cost{1e-6 + 2e-6, 2000, "ring"}},
		{"all_to_all", 4, 4000, Cost{3e-6 + 3e-6, 3000, "direct"}},
		{"all_to_all", 4, 400, Cost{2e-6 + 0.4e-6, 400, "tree"}}, // Bruck: two messages of half
		{"broadcast", 5, 1000, Cost{3 * 2e-6, 1000, "tree"}},
		{"gather", 4, 4000, Cost{3e-6 + 3e-6, 3000, "direct"}},
		{"send", 1, 1000, Cost{2e-6, 1000, "direct"}},
		{"recv", 2, 1000, Cost{}},
		{"shard_slice", 4, 1000, Cost{}},
		{"all_reduce", 1, 1000, Cost{}},
		{"barrier", 8, 0, Cost{Seconds: 3e-6, Sent: 0, Algorithm: "tree"}},
	} {
		got := l.Cost(mesh.Collective(c.kind), c.n, c.bytes)
		if math.Abs(got.Seconds-c.want.Seconds) > 1e-12 || got.Sent != c.want.Sent || got.Algorithm != c.want.Algorithm {
			t.Errorf("%s of %d bytes among %d: %+v, want %+v", c.kind, c.bytes, c.n, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	top, err := Parse("nvlink,dp=20us/12.5GB,pp=ethernet")
	if err != nil {
		t.Fatal(err)
	}
	if l := top.Link("tp"); l.Name != "nvlink" || l.Beta != 450e9 || l.Source == "" {
		t.Errorf("tp: %+v", l)
	}
	if l := top.Link("dp"); math.Abs(l.Alpha-20e-6) > 1e-18 || l.Beta != 12.5e9 {
		t.Errorf("dp: %+v", l)
	}
	if l := top.Link("pp"); l.Name != "ethernet" {
		t.Errorf("pp: %+v", l)
	}
	if top, err = Parse(""); err != nil || top.Link("dp").Name != "shm" {
		t.Errorf("none given: %+v, %v", top, err)
	}
	for _, bad := range []string{"warp", "dp=", "1/2/3", "5us", "5us/0GB", "-1us/1GB", "xus/1GB", "5/1GB", "NaNus/1GB", ",", "/"} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), "is not a link") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
