// Package cpu is the processor that the process itself runs on, as a device: its arena, how many threads a rank uses, and what it is.
package cpu

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Threads is the number of threads that a rank should use: wanted when positive, else OMP_NUM_THREADS, else this
// process's share of the processors when ranks (at least 1) of them run on this host. getenv is os.Getenv or a test's.
func Threads(wanted, ranks int, getenv func(string) string) (int, error) {
	if wanted > 0 {
		return wanted, nil
	}
	if s := getenv("OMP_NUM_THREADS"); s != "" {
		// "4,2" sets nested levels: the first is ours.
		first, _, _ := strings.Cut(s, ",")
		n, err := strconv.Atoi(strings.TrimSpace(first))
		if err != nil || n < 1 {
			return 0, fmt.Errorf("OMP_NUM_THREADS=%q is not a positive number", s)
		}
		return n, nil
	}
	// GOMAXPROCS heeds the affinity mask and the limit of the container, which NumCPU does not.
	return max(1, runtime.GOMAXPROCS(0)/max(ranks, 1)), nil
}

// Model is the processor's name, such as "AMD EPYC 9655", or the architecture where the system does not tell.
func Model() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		if _, rest, ok := bytes.Cut(text, []byte("model name")); ok {
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			if _, name, ok := bytes.Cut(line, []byte(":")); ok {
				return string(bytes.TrimSpace(name))
			}
		}
	}
	return runtime.GOARCH
}
