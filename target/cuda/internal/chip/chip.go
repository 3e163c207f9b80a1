// Package chip knows the chips that kernels of target cuda are compiled for, by the names that --arch takes.
package chip

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Host as a chip runs the kernels of target cuda on this processor, by a stand-in of the GPU and its driver.
const Host = "host"

// minCapability is the oldest chip: tensor cores with bf16, and asynchronous copies.
const minCapability = 80

// Defaults are those that programs are compiled for unless others are named: A100 and H100. What is compiled for the last runs on
// later ones, too.
func Defaults() []string { return []string{"sm_80", "sm_90"} }

// Capability is 90 of sm_90, and of sm_90a; 0 for anything else.
func Capability(arch string) int {
	text, ok := strings.CutPrefix(arch, "sm_")
	if !ok {
		if text, ok = strings.CutPrefix(arch, "compute_"); !ok {
			return 0
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 10 || n > 999 {
		return 0
	}
	return n
}

// Check refuses what is no chip that programs can run on, without looking for a compiler.
func Check(archs []string) error {
	for _, a := range archs {
		switch n := Capability(a); {
		case a == Host && len(archs) == 1:
		case a == Host:
			return errors.New("--arch host excludes other chips: it is a processor without a GPU, for tests")
		case n == 0 || strings.HasPrefix(a, "compute_"):
			return fmt.Errorf("--arch must name chips, such as sm_80 (A100), sm_89 (L40), sm_90 (H100, H200) or sm_100 (B200), or host, not %q", a)
		case n < minCapability:
			return fmt.Errorf("--arch %s: gtc's kernels need sm_%d or later (bf16 tensor cores)", a, minCapability)
		}
	}
	return nil
}
