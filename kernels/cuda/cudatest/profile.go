package cudatest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/kernels/cuda/standin"
)

// Profile, set in the environment, has RunAll log at which places of kernels the lanes of a warp ask for memory in a way that
// costs a GPU more than it must: global memory in more sectors of 32 bytes, shared memory in more passes over its banks.
const Profile = "GTC_HOST_PROFILE"

// access is what the runner counted at one place of a kernel.
type access struct {
	kernel, memory, place          string
	requests, bytes, parts, atBest int
}

// parseAccess reads a line of the runner.
func parseAccess(line string) (access, bool) {
	var a access
	n, _ := fmt.Sscan(line, &a.kernel, &a.memory, &a.requests, &a.bytes, &a.parts, &a.atBest, &a.place)
	return a, n == 7
}

// wasteful is how much more than the best an access may cost before it is shown.
const wasteful = 1.25

// logProfile logs the wasteful accesses, those that waste most first.
func logProfile(t testing.TB, image string, list []access) {
	t.Helper()
	sum := map[[3]string]*access{}
	for _, a := range list {
		key := [3]string{a.kernel, a.memory, a.place}
		if have := sum[key]; have != nil {
			have.requests, have.bytes, have.parts, have.atBest = have.requests+a.requests, have.bytes+a.bytes, have.parts+a.parts, have.atBest+a.atBest
		} else {
			sum[key] = &a
		}
	}
	var shown []*access
	for _, a := range sum {
		if float64(a.parts) > wasteful*float64(a.atBest) {
			shown = append(shown, a)
		}
	}
	slices.SortFunc(shown, func(a, b *access) int {
		return cmp.Or((b.parts-b.atBest)-(a.parts-a.atBest), strings.Compare(a.kernel+a.place, b.kernel+b.place))
	})
	var b strings.Builder
	for _, a := range shown {
		unit := map[string]string{"global": "sectors", "shared": "passes"}[a.memory]
		fmt.Fprintf(&b, "\n%-40s %s: %6d requests, %8d bytes, %7d %s of %7d at best  %s", a.kernel, a.memory, a.requests, a.bytes, a.parts, unit, a.atBest,
			standin.Lines(a.place, image))
	}
	if b.Len() > 0 {
		t.Log(b.String())
	}
}
