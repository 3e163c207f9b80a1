// Command sparse measures a training step of a model with a large embedding table, of which each batch looks up few rows: gtc
// beside PyTorch with sparse=True, and beside gtc with a dense gradient, A B A B in one run on one thread.
//
//	GTC_VENV=FOLDER go run ./bench/sparse [-rows 4000000] [-width 16] [-batch 64] [-lookups 4] [-rounds 5] [-steps 200]
//	    [-optimizers sgd,adagrad,sparse_adam] [-max 3]
//
// It must run in the repository's root. side.py exports the model, writes its data and is PyTorch's side, which stays warm; gtc's is
// the rank program, run anew in every round, whose first steps are not counted. The dense program is
// compiled with --reproducible, which keeps the gradient of the table whole. Printed are the median times of a step in milliseconds, the ratio
// of gtc's to PyTorch's by round (smallest, median, largest), and the bytes of both arenas without parameters and state, which hold the
// gradient. With -max the exit status is 1 when a median ratio is above it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// options are the command's flags.
type options struct {
	rows, width, batch, lookups int
	rounds, steps               int
	max                         float64
}

// warm are the steps of a round of gtc that do not count.
const warm = 20

func main() {
	var o options
	flag.IntVar(&o.rows, "rows", 4_000_000, "rows of the table")
	flag.IntVar(&o.width, "width", 16, "width of the table")
	flag.IntVar(&o.batch, "batch", 64, "samples of a batch")
	flag.IntVar(&o.lookups, "lookups", 4, "look-ups of a sample")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each measures every side once")
	flag.IntVar(&o.steps, "steps", 200, "steps that count in a round")
	flag.Float64Var(&o.max, "max", 0, "fail when a median ratio of gtc to PyTorch is above this")
	names := flag.String("optimizers", "sgd,adagrad,sparse_adam", "optimizers to measure")
	flag.Parse()
	if err := bench(o, strings.Split(*names, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench/sparse:", err)
		os.Exit(1)
	}
}

func bench(o options, names []string) (err error) {
	if o.rounds < 1 || o.steps < 1 {
		return errors.New("-rounds and -steps must be at least 1")
	}
	dir, err := os.MkdirTemp("", "gtc-sparse-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	torch, err := startTorch(dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, torch.close()) }()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "gtc"), "./cmd/gtc").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	var slow []string
	for _, name := range names {
		ratio, err := measure(dir, name, torch, o)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if o.max > 0 && ratio > o.max {
			slow = append(slow, fmt.Sprintf("%s %.2f", name, ratio))
		}
	}
	if len(slow) > 0 {
		return fmt.Errorf("above -max %.2f: %s", o.max, strings.Join(slow, ", "))
	}
	return nil
}

// measure runs all rounds of one optimizer, prints its lines and returns the median ratio of gtc's time to PyTorch's.
func measure(dir, name string, torch *rival, o options) (float64, error) {
	sparse, err := compile(dir, name, o, false)
	if err != nil {
		return 0, err
	}
	dense, err := compile(dir, name, o, true)
	if err != nil {
		return 0, err
	}
	var times [3][]float64
	var ratios []float64
	for range o.rounds {
		for i, run := range []func() (float64, error){
			func() (float64, error) { return sparse.run(o.steps) },
			func() (float64, error) { return torch.run(name, o.steps) },
			func() (float64, error) { return dense.run(max(o.steps/10, 3)) },
		} {
			seconds, err := run()
			if err != nil {
				return 0, err
			}
			times[i] = append(times[i], 1e3*seconds)
		}
		ratios = append(ratios, times[0][len(times[0])-1]/times[1][len(times[1])-1])
	}
	fmt.Printf("%s: table %d x %d, %d x %d look-ups, %d rounds of %d steps, 1 thread\n", name, o.rows, o.width, o.batch, o.lookups, o.rounds, o.steps)
	for i, title := range []string{"gtc", torch.version + " sparse=True", "gtc, dense gradient"} {
		fmt.Printf("  %-24s %s ms a step\n", title, spread(times[i]))
	}
	fmt.Printf("  %-24s %s\n", "gtc / torch", spread(ratios))
	fmt.Printf("  beside parameters and state the arena has %d bytes, with a dense gradient %d: %.0f times as many\n", sparse.rest, dense.rest,
		float64(dense.rest)/float64(sparse.rest))
	return median(ratios), nil
}

// program is one rank program of gtc.
type program struct {
	dir, data string
	rest      int // bytes of the arena that are neither parameters nor state
}

// compile makes the program, or the one with a dense gradient.
func compile(dir, name string, o options, dense bool) (*program, error) {
	p := &program{dir: filepath.Join(dir, fmt.Sprintf("%s-%t", name, dense)), data: filepath.Join(dir, "data.npz")}
	c := exec.Command(filepath.Join(dir, "gtc"), "compile", filepath.Join(dir, "model.onnx"), "-o", p.dir, "--batch", strconv.Itoa(o.batch),
		"--loss", "cross_entropy", "--optimizer", name, "--lr", "0.01", fmt.Sprintf("--reproducible=%t", dense))
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", c, err, out)
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "gtc.json"))
	if err != nil {
		return nil, err
	}
	var plan struct {
		Programs []struct {
			Arena   int `json:"arena_bytes"`
			Tensors []struct {
				Name, Role string
				Bytes      int
			}
		}
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		return nil, err
	}
	if len(plan.Programs) != 1 || plan.Programs[0].Arena == 0 {
		return nil, errors.New("gtc.json does not tell the arena of one program")
	}
	p.rest = plan.Programs[0].Arena
	for _, t := range plan.Programs[0].Tensors {
		if t.Role == "param" || t.Role == "state" {
			p.rest -= t.Bytes
		}
	}
	return p, nil
}

// run does n steps that count and returns the median of their seconds.
func (p *program) run(n int) (float64, error) {
	c := exec.Command(filepath.Join(p.dir, "bin", "rank-0"), "--data", p.data, "--bench", "--threads", "1", "--steps", strconv.Itoa(warm+n))
	c.Env, c.Stderr = append(os.Environ(), "OMP_NUM_THREADS=1"), os.Stderr
	out, err := c.Output()
	if err != nil {
		return 0, err
	}
	seconds, err := readRows(bufio.NewReader(strings.NewReader(string(out))), warm+n)
	if err != nil {
		return 0, err
	}
	return median(seconds[warm:]), nil
}

// rival is PyTorch's side: side.py, which answers requests until its input ends.
type rival struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	version string
}

func startTorch(dir string, o options) (*rival, error) {
	c := exec.Command("tests/torch/run.sh", "bench/sparse/side.py", dir)
	for _, n := range []int{o.rows, o.width, o.batch, o.lookups} {
		c.Args = append(c.Args, strconv.Itoa(n))
	}
	c.Env, c.Stderr = append(os.Environ(), "OMP_NUM_THREADS=1"), os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	r := &rival{command: c, in: in, out: bufio.NewReader(out)}
	var hello struct{ Ready string }
	if err := readJSON(r.out, &hello); err != nil {
		return nil, errors.Join(fmt.Errorf("side.py did not start: %w", err), r.close())
	}
	r.version = hello.Ready
	return r, nil
}

func (r *rival) close() error { return errors.Join(r.in.Close(), r.command.Wait()) }

func (r *rival) run(name string, n int) (float64, error) {
	if _, err := fmt.Fprintf(r.in, "%s %d\n", name, n); err != nil {
		return 0, err
	}
	seconds, err := readRows(r.out, n)
	if err != nil {
		return 0, err
	}
	return median(seconds), nil
}

// readRows reads n steps and returns their seconds.
func readRows(from *bufio.Reader, n int) ([]float64, error) {
	seconds := make([]float64, 0, n)
	for len(seconds) < n {
		var s struct {
			Step    int
			Seconds float64
		}
		if err := readJSON(from, &s); err != nil {
			return nil, fmt.Errorf("step %d of %d: %w", len(seconds)+1, n, err)
		}
		if s.Step > 0 && s.Seconds > 0 {
			seconds = append(seconds, s.Seconds)
		}
	}
	return seconds, nil
}

// readJSON reads the next line that begins like a JSON object; other lines are passed over.
func readJSON(from *bufio.Reader, into any) error {
	for {
		line, err := from.ReadString('\n')
		if strings.HasPrefix(line, "{") {
			return json.Unmarshal([]byte(line), into)
		}
		if err != nil {
			return err
		}
	}
}

// median of a list that is not empty.
func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// spread prints the smallest, the median and the largest of a list.
func spread(list []float64) string {
	return fmt.Sprintf("min %.3f  median %.3f  max %.3f", slices.Min(list), median(list), slices.Max(list))
}
