// Command step measures one training step of gtc against one of PyTorch (eager, fp32) on the same model, batch,
// optimizer and number of threads, A B A B in one run, and prints the ratio of the step times.
//
//	go run ./bench/step [-models gpt,cnn] [-rounds 6] [-steps 30] [-threads 2] [-only gtc|torch] [-min 1.0]
//
// It must run in the repository's root, and makes the data that the examples only have the source of. gtc's side is the rank program that `gtc compile` makes of the example; it runs
// anew in every round and its first steps are not counted. PyTorch's side is rival.py, which stays warm. Each round gives
// one ratio, of the medians of its step times; the smallest, the median and the largest ratio are printed. With -min the
// exit status is 1 when a median is below it. Times are in milliseconds; a ratio above 1 means that gtc is faster.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

// options are the command's flags.
type options struct {
	models    []string
	rounds    int
	steps     int
	warm      int
	threads   int
	only      string
	min       float64
	optimizer string
}

// runner does training steps and tells how long each took.
type runner interface {
	// run does n steps and returns their durations in seconds.
	run(n int) ([]float64, error)
	// title names the implementation, with its version.
	title() string
	close() error
}

func main() {
	var o options
	models := flag.String("models", "gpt,cnn", "the examples to measure: gpt, cnn, mlp")
	flag.IntVar(&o.rounds, "rounds", 6, "rounds; each measures every side once")
	flag.IntVar(&o.steps, "steps", 30, "steps that count in a round")
	flag.IntVar(&o.warm, "warm", 10, "steps before them that do not count")
	flag.IntVar(&o.threads, "threads", 2, "threads of each side")
	flag.StringVar(&o.only, "only", "", "measure one side only: gtc or torch")
	flag.Float64Var(&o.min, "min", 0, "fail when a median ratio is below this")
	flag.StringVar(&o.optimizer, "torch-optimizer", "default", "PyTorch's AdamW: default, foreach or fused")
	flag.Parse()
	o.models = strings.Split(*models, ",")
	if err := bench(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench/step:", err)
		os.Exit(1)
	}
}

func bench(o options) error {
	if o.rounds < 1 || o.steps < 1 {
		return errors.New("-rounds and -steps must be at least 1")
	}
	var slow []string
	for _, name := range o.models {
		ex, ok := examples[name]
		if !ok {
			return fmt.Errorf("-models: no example %q; there are gpt, cnn and mlp", name)
		}
		ratio, err := measure(ex, o)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if o.only == "" && ratio < o.min {
			slow = append(slow, fmt.Sprintf("%s %.2f", name, ratio))
		}
	}
	if len(slow) > 0 {
		return fmt.Errorf("below -min %.2f: %s", o.min, strings.Join(slow, ", "))
	}
	return nil
}

// measure runs all rounds of one example, prints its line and returns the median ratio (0 with -only).
func measure(ex example, o options) (ratio float64, err error) {
	runners, err := start(ex, o)
	defer func() {
		for _, r := range runners {
			err = errors.Join(err, r.close())
		}
	}()
	if err != nil {
		return 0, err
	}
	times := make([][]float64, len(runners)) // [side][round], the median seconds of a step
	for range o.rounds {
		for i, r := range runners {
			seconds, err := r.run(o.steps)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", r.title(), err)
			}
			times[i] = append(times[i], median(seconds))
		}
	}
	fmt.Printf("%s, %d rounds of %d steps, %d threads\n", ex.name, o.rounds, o.steps, o.threads)
	for i, r := range runners {
		fmt.Printf("  %-20s %s ms a step\n", r.title(), spread(times[i], 1e3))
	}
	if len(runners) < 2 {
		return 0, nil
	}
	ratios := make([]float64, o.rounds)
	for i := range ratios {
		ratios[i] = times[1][i] / times[0][i]
	}
	fmt.Printf("  %-20s %s\n", "torch / gtc", spread(ratios, 1))
	return median(ratios), nil
}

// start starts the wanted sides, gtc first. On an error it returns those that it had started.
func start(ex example, o options) ([]runner, error) {
	if err := ex.ready(); err != nil {
		return nil, err
	}
	var runners []runner
	if o.only != "torch" {
		r, err := startGTC(ex, o)
		if err != nil {
			return runners, err
		}
		runners = append(runners, r)
	}
	if o.only != "gtc" {
		r, err := startTorch(ex, o)
		if err != nil {
			return runners, err
		}
		runners = append(runners, r)
		if _, err := r.run(o.warm); err != nil {
			return runners, err
		}
	}
	return runners, nil
}

// median of a list that is not empty.
func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// spread prints the smallest, the median and the largest of a list, each times scale.
func spread(list []float64, scale float64) string {
	return fmt.Sprintf("min %.2f  median %.2f  max %.2f", scale*slices.Min(list), scale*median(list), scale*slices.Max(list))
}
