package cuda

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/distributed/launch"
	"github.com/gtc-compiler/gtc/kernels/cuda/standin"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// job is a compiled MLP, of 32 inputs and 10 classes in batches of 16.
type job struct {
	dir   string
	ranks int
}

func compiled(t *testing.T, target string, ranks int) *job {
	t.Helper()
	o := options(t, filepath.Join(dir, "mlp.onnx"))
	c := &o.Compile
	c.Out = t.TempDir()
	c.Pass.Target, c.Pass.Arch, c.Pass.DP = target, nil, ranks
	if target == pass.CUDA {
		c.Pass.Arch = []string{pass.Host}
	}
	c.Pass.Loss, c.Pass.Optimizer = "cross_entropy", pass.Optimizer{Name: "adamw", LR: 1e-3, WeightDecay: 0.01}
	if _, err := compiler.Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	if err := build.Binaries(context.Background(), c.Out, build.How{Ranks: ranks, On: c.Pass.On()}); err != nil {
		t.Fatal(err)
	}
	return &job{c.Out, ranks}
}

// run runs all ranks and gives rank 0's output, all errors, and the exit code.
func (j *job) run(env []string, args ...string) (out, stderr string, code int) {
	var a, b bytes.Buffer
	o := launch.Options{Args: append(args, "--dir", j.dir), Env: env, Stdout: &a, Stderr: &b}
	for r := range j.ranks {
		o.Bins = append(o.Bins, build.RankBinary(j.dir, r))
	}
	code = launch.ExitCode(launch.Local(context.Background(), o))
	return a.String(), b.String(), code
}

// losses are those that a run reports, by step; eval is that at the end.
func losses(t *testing.T, out string) (steps []float64, eval float64) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var e struct {
			Event string
			Loss  float64
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		switch e.Event {
		case "step":
			steps = append(steps, e.Loss)
		case "eval":
			eval = e.Loss
		}
	}
	return steps, eval
}

// samples writes n samples of which one has class bad, unless that is 0.
func samples(t *testing.T, n int, bad int64) string {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var x, y []byte
	for i := range n {
		for range 32 {
			x = binary.LittleEndian.AppendUint32(x, math.Float32bits(float32(r.NormFloat64())))
		}
		class := r.Int64N(10)
		if i == n/2 && bad != 0 {
			class = bad
		}
		y = binary.LittleEndian.AppendUint64(y, uint64(class))
	}
	path := filepath.Join(t.TempDir(), "data.npz")
	err := npz.WriteFile(path, []npz.Array{{Name: "in0", DType: "f32", Shape: []int{n, 32}, Data: x}, {Name: "target", DType: "i64", Shape: []int{n}, Data: y}})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTraining trains from data as users do: batches are prefetched, steps run as graphs, results come late, whatever the order in
// which the device does what it may; losses are those of the CPU's program, over checkpoints that one writes and the other reads.
func TestTraining(t *testing.T) {
	if _, err := standin.Compiler(); err != nil {
		t.Skip(err)
	}
	models(t)
	cpu, gpu, two := compiled(t, pass.CPU, 1), compiled(t, pass.CUDA, 1), compiled(t, pass.CUDA, 2)
	data := samples(t, 200, 0)
	args := []string{"--data", data, "--eval-data", data, "--json", "--log-every", "7"}
	ok := func(j *job, env []string, more ...string) ([]float64, float64) {
		t.Helper()
		out, stderr, code := j.run(env, append(args, more...)...)
		if code != 0 || strings.Contains(stderr, "cannot be recorded") {
			t.Fatalf("exit code %d\n%s", code, stderr)
		}
		return losses(t, out)
	}
	want, last := ok(cpu, nil, "--steps", "42", "--checkpoint-dir", "none")
	near := func(name string, got []float64, eval float64, from int) {
		t.Helper()
		if len(got) != len(want)-from || math.Abs(eval-last) > 1e-4*last {
			t.Fatalf("%s: losses %v and %v, on the CPU %v and %v", name, got, eval, want, last)
		}
		for i := range got {
			if math.Abs(got[i]-want[from+i]) > 1e-4*want[from+i] {
				t.Errorf("%s: losses %v, on the CPU %v", name, got, want)
			}
		}
	}
	for _, env := range [][]string{nil, {"GTC_STANDIN_ORDER=lazy"}, {"GTC_STANDIN_ORDER=random"}, {"GTC_GRAPH=0", "GTC_STANDIN_ORDER=random"}} {
		steps, eval := ok(gpu, env, "--steps", "42", "--checkpoint-dir", "none")
		near(strings.Join(env, " "), steps, eval, 0)
	}
	ck := t.TempDir()
	ok(gpu, nil, "--steps", "14", "--checkpoint-dir", ck)
	ok(cpu, nil, "--steps", "21", "--checkpoint-dir", ck, "--resume")
	ok(two, []string{"GTC_STANDIN_ORDER=random"}, "--steps", "28", "--checkpoint-dir", ck, "--resume")
	steps, eval := ok(gpu, nil, "--steps", "42", "--checkpoint-dir", ck, "--resume")
	near("resumed", steps, eval, 4)

	// What goes wrong is told as on the CPU, or in terms of the device.
	bad := samples(t, 200, 77)
	_, told, code := cpu.run(nil, "--data", bad, "--steps", "42", "--checkpoint-dir", "none")
	message := told[strings.LastIndex(strings.TrimSpace(told), "\n")+1:]
	if code != 1 || !strings.Contains(message, `sample 100 of --data`) {
		t.Fatalf("exit code %d\n%s", code, told)
	}
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string
		code int
	}{
		"a class out of range":  {nil, []string{"--data", bad}, strings.TrimSpace(message), 1},
		"call by call":          {[]string{"GTC_DEBUG=3"}, []string{"--data", bad}, strings.TrimSpace(message), 1},
		"memory":                {[]string{"GTC_STANDIN_MEMORY=65536"}, args, "KiB, device 0 (gtc stand-in 0) has 64.0 KiB, of which 64.0 KiB are free", 1},
		"no device":             {[]string{"CUDA_VISIBLE_DEVICES="}, args, "no CUDA-capable device is detected", 1},
		"no driver":             {[]string{"GTC_CUDA_LIB=nowhere.so"}, args, "no NVIDIA driver: libcuda.so.1 cannot be loaded", 1},
		"collectives unlike it": {[]string{"GTC_COMM=smoke"}, args, "", 0}, // a job of one rank talks to nobody
	} {
		_, stderr, code := gpu.run(c.env, append(c.args, "--steps", "42", "--checkpoint-dir", "none")...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", name, code, c.want, stderr)
		}
	}
	if _, stderr, code := two.run([]string{"GTC_COMM=nccl", "GTC_NCCL_LIB=nowhere.so"}, append(args, "--steps", "3")...); code != 2 || !strings.Contains(stderr, "collectives by NCCL were asked for (--comm, GTC_COMM): NCCL cannot be loaded") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}
