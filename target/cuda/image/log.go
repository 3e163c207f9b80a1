package image

import (
	"regexp"
	"strconv"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// What ptxas says of a kernel (--ptxas-options=-v).
var (
	registers = regexp.MustCompile(`Used (\d+) registers`)
	stack     = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	shared    = regexp.MustCompile(`(\d+) bytes smem`)
)

// parse reads the figures of the one kernel of a log.
func parse(log string) abi.KernelFigures {
	var f abi.KernelFigures
	if m := registers.FindStringSubmatch(log); m != nil {
		f.Registers, _ = strconv.Atoi(m[1])
	}
	if m := stack.FindStringSubmatch(log); m != nil {
		f.Stack, _ = strconv.Atoi(m[1])
		stores, _ := strconv.Atoi(m[2])
		loads, _ := strconv.Atoi(m[3])
		f.Spills = stores + loads
	}
	if m := shared.FindStringSubmatch(log); m != nil {
		f.Shared, _ = strconv.Atoi(m[1])
	}
	return f
}
