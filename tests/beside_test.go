package tests

import (
	"strings"
	"testing"
)

// besideTests are the folders whose packages must have tests beside them, whatever others test them as well.
var besideTests = []string{"passes", "ir"}

// TestBeside: every package of passes and of the representation has tests of its own. Those that only serve tests are tested by these.
func TestBeside(t *testing.T) {
	sources, tested := map[string]bool{}, map[string]bool{}
	for _, f := range sourceFiles(t) {
		if f.test {
			tested[f.pkg] = true
		} else {
			sources[f.pkg] = true
		}
	}
	seen := 0
	for pkg := range sources {
		for _, dir := range besideTests {
			if strings.HasSuffix(pkg, "test") || pkg != dir && !strings.HasPrefix(pkg, dir+"/") {
				continue
			}
			if seen++; !tested[pkg] {
				t.Errorf("%s has no tests beside it", pkg)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d packages were found", seen)
	}
}
