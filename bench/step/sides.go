package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// example says how one model of examples/ is compiled and fed; the settings equal those of tests/torch/models.py.
type example struct {
	name    string
	model   string   // ONNX file
	data    string   // what the rank program reads
	prepare []string // arguments of the go run that makes the data; nil when they are in the repository
	compile []string // gtc compile's flags
}

var examples = map[string]example{
	"gpt": {"gpt", "examples/shakespeare/gpt.onnx", "examples/shakespeare/train.bin", []string{"./examples/shakespeare/prepare"}, []string{"--batch", "12", "--loss", "cross_entropy",
		"--optimizer", "adamw", "--lr", "2e-3", "--beta2", "0.99", "--weight-decay", "0.1", "--no-decay", "1d",
		"--clip-norm", "1.0"}},
	"cnn": {"cnn", "examples/mnist/cnn.onnx", "examples/mnist/train.npz", nil, digits},
	"mlp": {"mlp", "examples/mnist/mlp.onnx", "examples/mnist/train.npz", nil, digits},
}

var digits = []string{"--batch", "32", "--loss", "cross_entropy", "--optimizer", "adamw", "--lr", "2e-3",
	"--weight-decay", "0.01", "--no-decay", "1d"}

// row is what both sides print for a step.
type row struct {
	Step    int     `json:"step"`
	Loss    float64 `json:"loss"`
	Seconds float64 `json:"seconds"`
}

// environment is this process's without what would give one side other threads or another BLAS than the other.
func environment(threads int) []string {
	var kept []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "OPENBLAS_") || strings.HasPrefix(name, "OMP_") || strings.HasPrefix(name, "MKL_") {
			continue
		}
		kept = append(kept, v)
	}
	return append(kept, "OMP_NUM_THREADS="+strconv.Itoa(threads))
}

// rankProgram is gtc's side: the only rank of a compiled example, run anew for every request.
type rankProgram struct {
	dir     string
	args    []string
	warm    int
	threads int
}

// ready makes the data of the example where they are missing: a fresh clone has only what they are made from.
func (ex example) ready() error {
	if _, err := os.Stat(ex.data); !errors.Is(err, fs.ErrNotExist) || ex.prepare == nil {
		return err
	}
	c := exec.Command("go", append([]string{"run"}, ex.prepare...)...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, out)
	}
	return nil
}

// startGTC builds gtc, compiles the example into a temporary folder and returns its rank program.
func startGTC(ex example, o options) (*rankProgram, error) {
	dir, err := os.MkdirTemp("", "gtc-bench-")
	if err != nil {
		return nil, err
	}
	r := &rankProgram{dir: dir, warm: o.warm, threads: o.threads, args: []string{"--data", ex.data, "--bench", "--threads", strconv.Itoa(o.threads)}}
	gtc := filepath.Join(dir, "gtc")
	compile := append([]string{"compile", ex.model, "-o", filepath.Join(dir, "out")}, ex.compile...)
	for _, c := range []*exec.Cmd{exec.Command("go", "build", "-o", gtc, "./cmd/gtc"), exec.Command(gtc, compile...)} {
		if out, err := c.CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w\n%s", c, err, out), r.close())
		}
	}
	return r, nil
}

func (r *rankProgram) title() string { return "gtc" }

func (r *rankProgram) close() error { return os.RemoveAll(r.dir) }

func (r *rankProgram) run(n int) ([]float64, error) {
	args := append([]string{"--steps", strconv.Itoa(r.warm + n)}, r.args...)
	c := exec.Command(filepath.Join(r.dir, "out", "bin", "rank-0"), args...)
	c.Env, c.Stderr = environment(r.threads), os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	seconds, err := readRows(bufio.NewReader(out), r.warm+n)
	if err = errors.Join(err, c.Wait()); err != nil {
		return nil, err
	}
	return seconds[r.warm:], nil
}

// rival is PyTorch's side: rival.py, which answers requests until its input ends.
type rival struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	version string
}

func startTorch(ex example, o options) (*rival, error) {
	c := exec.Command("tests/torch/run.sh", "bench/step/rival.py", ex.name, "--threads", strconv.Itoa(o.threads), "--optimizer", o.optimizer)
	c.Env, c.Stderr = environment(o.threads), os.Stderr
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
		return nil, errors.Join(fmt.Errorf("rival.py did not start: %w", err), r.close())
	}
	r.version = hello.Ready
	return r, nil
}

func (r *rival) title() string { return r.version }

func (r *rival) close() error { return errors.Join(r.in.Close(), r.command.Wait()) }

func (r *rival) run(n int) ([]float64, error) {
	if _, err := fmt.Fprintf(r.in, "run %d\n", n); err != nil {
		return nil, err
	}
	return readRows(r.out, n)
}

// readRows reads n steps and returns their seconds.
func readRows(from *bufio.Reader, n int) ([]float64, error) {
	seconds := make([]float64, 0, n)
	for len(seconds) < n {
		var s row
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
