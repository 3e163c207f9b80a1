// Command comm measures an all_reduce of gtc's `local` collectives against Open MPI's between processes of this host, A B
// A B in one run, and prints the ratio of the bandwidths.
//
//	go run ./bench/comm [-bytes 67108864] [-ranks 2,4] [-rounds 7] [-times 20] [-only gtc|mpi] [-min 1.0]
//
// Both sides reduce f32 sums in place, in buffers that are written before every call. gtc's side is this program, started
// once for each rank; MPI's is mpi/allreduce.c, compiled with mpicc and started by mpirun with its own defaults (as root
// and with more ranks than cores, where that is so). Every round starts both anew, each round gives one ratio, of the
// medians of rank 0's times; smallest, median and largest are printed. With -min the exit status is 1 when a median is
// below it. A ratio above 1 means that gtc is faster. Without mpicc and mpirun it says so and exits with status 2:
// on Debian, apt-get install libopenmpi-dev openmpi-bin.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// options are the command's flags.
type options struct {
	bytes  int
	ranks  []int
	rounds int
	warm   int
	times  int
	only   string
	min    float64
}

// side runs one library's ranks.
type side interface {
	// run starts ranks processes, has them all_reduce and returns the seconds of every call that counts.
	run(ranks int, o options) ([]float64, error)
	// title names the library, with its version.
	title() string
}

func main() {
	if os.Getenv(rankVariable) != "" {
		os.Exit(rankMain())
	}
	var o options
	ranks := flag.String("ranks", "2,4", "numbers of processes")
	flag.IntVar(&o.bytes, "bytes", 64<<20, "size of the buffer")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds; each measures every side once")
	flag.IntVar(&o.times, "times", 20, "all_reduces that count in a round")
	flag.IntVar(&o.warm, "warm", 3, "all_reduces before them that do not count")
	flag.StringVar(&o.only, "only", "", "measure one side only: gtc or mpi")
	flag.Float64Var(&o.min, "min", 0, "fail when a median ratio is below this")
	flag.Parse()
	for _, text := range strings.Split(*ranks, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fail(2, fmt.Errorf("-ranks: %q is not a number of processes", text))
		}
		o.ranks = append(o.ranks, n)
	}
	if o.bytes < 4 || o.rounds < 1 || o.times < 1 || o.warm < 0 {
		fail(2, errors.New("-bytes must be at least 4, -rounds and -times at least 1, -warm at least 0"))
	}
	o.bytes &^= 3
	sides, err := start(o.only)
	defer stop(sides)
	if err != nil {
		stop(sides)
		fail(2, err)
	}
	if err := bench(sides, o); err != nil {
		stop(sides)
		fail(1, err)
	}
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, "bench/comm:", err)
	os.Exit(code)
}

// start makes the wanted sides, gtc first.
func start(only string) ([]side, error) {
	var sides []side
	if only != "mpi" {
		sides = append(sides, processes{})
	}
	if only != "gtc" {
		m, err := startMPI()
		if err != nil {
			return sides, err
		}
		sides = append(sides, m)
	}
	return sides, nil
}

func stop(sides []side) {
	for _, s := range sides {
		if m, ok := s.(*mpi); ok {
			os.RemoveAll(m.dir)
		}
	}
}

// bench measures every number of ranks.
func bench(sides []side, o options) error {
	var slow []string
	for _, n := range o.ranks {
		ratio, err := measure(sides, n, o)
		if err != nil {
			return err
		}
		if len(sides) > 1 && ratio < o.min {
			slow = append(slow, fmt.Sprintf("%d ranks %.2f", n, ratio))
		}
	}
	if len(slow) > 0 {
		return fmt.Errorf("below -min %.2f: %s", o.min, strings.Join(slow, ", "))
	}
	return nil
}

// measure runs all rounds of one number of ranks, prints its lines and returns the median ratio (0 with -only).
func measure(sides []side, ranks int, o options) (float64, error) {
	rates := make([][]float64, len(sides)) // [side][round], GB/s of the buffer
	for range o.rounds {
		for i, s := range sides {
			seconds, err := s.run(ranks, o)
			if err != nil {
				return 0, fmt.Errorf("%s, %d ranks: %w", s.title(), ranks, err)
			}
			rates[i] = append(rates[i], float64(o.bytes)/median(seconds)/1e9)
		}
	}
	fmt.Printf("all_reduce of %d bytes f32 between %d processes, %d rounds of %d\n", o.bytes, ranks, o.rounds, o.times)
	for i, s := range sides {
		fmt.Printf("  %-18s %s GB/s\n", s.title(), spread(rates[i]))
	}
	if len(sides) < 2 {
		return 0, nil
	}
	ratios := make([]float64, o.rounds)
	for i := range ratios {
		ratios[i] = rates[0][i] / rates[1][i]
	}
	fmt.Printf("  %-18s %s\n", "gtc / mpi", spread(ratios))
	return median(ratios), nil
}

// median of a list that is not empty.
func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// spread prints the smallest, the median and the largest of a list.
func spread(list []float64) string {
	return fmt.Sprintf("min %.2f  median %.2f  max %.2f", slices.Min(list), median(list), slices.Max(list))
}
