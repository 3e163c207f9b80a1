package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// figure is one entry of the page.
type figure struct {
	name, group string
	what        string // what is measured, a sentence without its full stop
	command     string // for sh
	takes       time.Duration
	needs       []string // keys of needed
	reads       reading
	beside      string // what it is compared with, where the command does not print that
}

// How a reading joins what it finds several times.
const (
	last    = iota // the last one counts
	every          // all of them, one after the other
	worst          // the greatest of each number
	counted        // how many there are, in place of $n
)

// reading finds a figure in the output of a command.
type reading struct {
	find *regexp.Regexp
	say  string // the figure, with $1 and so on of find
	join int
}

// in is the figure in text; false when it is not there.
func (r *reading) in(text string) (string, bool) {
	found := r.find.FindAllStringSubmatchIndex(text, -1)
	if len(found) == 0 {
		return "", false
	}
	expand := func(at []int) string {
		return strings.Join(strings.Fields(string(r.find.ExpandString(nil, r.say, text, at))), " ")
	}
	switch r.join {
	case every:
		var list []string
		for _, at := range found {
			list = append(list, expand(at))
		}
		return strings.Join(list, "; "), true
	case worst:
		said := r.say
		for k := 1; k <= r.find.NumSubexp(); k++ {
			most := math.Inf(-1)
			for _, at := range found {
				x, err := strconv.ParseFloat(text[at[2*k]:at[2*k+1]], 64)
				if err != nil || math.IsNaN(x) {
					return "", false
				}
				most = max(most, x)
			}
			said = strings.ReplaceAll(said, fmt.Sprintf("$%d", k), strconv.FormatFloat(most, 'g', 2, 64))
		}
		return strings.ReplaceAll(said, "$n", strconv.Itoa(len(found))), true
	case counted:
		return strings.ReplaceAll(r.say, "$n", strconv.Itoa(len(found))), true
	}
	return expand(found[len(found)-1]), true
}

// needed says how a need is looked for.
var needed = map[string]func() bool{
	"../shared": func() bool { _, err := os.Stat("../shared/models"); return err == nil },
	"PyTorch (GTC_VENV)": func() bool {
		venv := os.Getenv("GTC_VENV")
		return venv != "" && exec.Command(venv+"/bin/python", "-c", "import torch").Run() == nil
	},
	"Open MPI":        func() bool { _, err := exec.LookPath("mpicc"); return err == nil },
	"NVRTC":           func() bool { return os.Getenv("CUDA_HOME")+os.Getenv("CUDA_PATH") != "" },
	"a GPU":           func() bool { _, err := os.Stat("/dev/nvidiactl"); return err == nil },
	"a quiet machine": quiet,
}

// quiet reports whether less than a tenth of a core has been busy in the last minute: times of two programs that take turns
// are wrong beside a third.
func quiet() bool {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return true
	}
	load, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
	return err != nil || load < 0.1
}

// lacks says which need is not met, or "".
func (f *figure) lacks() string {
	for _, n := range f.needs {
		if there := needed[n]; there == nil || !there() {
			return "it needs " + n
		}
	}
	return ""
}

var (
	checked = regexp.MustCompile(`out (\S+), loss (\S+), gradients (\S+), curves (\S+)`)
	ratios  = ` +min (\S+)  median (\S+)  max (\S+)$`
)

const trainCNN = "bin/gtc compile examples/mnist/cnn.onnx -o gtc-out/one --batch 32 --loss cross_entropy --optimizer adamw --lr 2e-3 " +
	"--weight-decay 0.01 --no-decay 1d --schedule cosine --total-steps 1410 --min-lr 2e-5"

// figures are those of the page, in its order. How long each takes is by two cores.
var figures = []figure{
	{name: "mnist", group: "Training", what: "The CNN of `examples/mnist` on two ranks, five epochs: accuracy on the 1,000 test digits",
		command: "examples/mnist/run.sh", takes: 3 * time.Minute,
		reads:  reading{regexp.MustCompile(`eval at step \d+  loss \S+  accuracy (\S+) %`), "$1 %", last},
		beside: "PyTorch from the same weights, three seeds: 98.6 to 98.9 (`examples/mnist/expected.json`)."},
	{name: "mnist-seeds", group: "Training", what: "The same on one rank, three seeds",
		command: "go build -o bin/gtc ./cmd/gtc && " + trainCNN + " &&\nfor s in 1 2 3; do bin/gtc run gtc-out/one --data examples/mnist/train.npz --eval-data examples/mnist/test.npz --epochs 5 --seed $s\ndone",
		takes:   6 * time.Minute,
		reads:   reading{regexp.MustCompile(`eval at step 1410  loss \S+  accuracy (\S+) %`), "$1 %", every}},
	{name: "shakespeare", group: "Training", what: "The character GPT of `examples/shakespeare` on two ranks, 2,000 steps: loss over the whole validation tenth",
		command: "go build -o bin/gtc ./cmd/gtc && go run ./examples/shakespeare/prepare &&\nbin/gtc compile examples/shakespeare/gpt.onnx -o gtc-out/gpt --dp 2 --batch 12 --loss cross_entropy --optimizer adamw --lr 2e-3 --beta2 0.99 --weight-decay 0.1 " +
			"--no-decay 1d --clip-norm 1 --schedule cosine --warmup 100 --total-steps 2000 --min-lr 2e-4 &&\nbin/gtc run gtc-out/gpt --data examples/shakespeare/train.bin --eval-data examples/shakespeare/val.bin --steps 2000",
		takes:  5 * time.Minute,
		reads:  reading{regexp.MustCompile(`eval at step \d+  loss (\S+) `), "$1", last},
		beside: "PyTorch from the same weights: 1.808 (`examples/shakespeare/expected.json`)."},
	{name: "kills", group: "Training", what: "20 kills of a random one of 8 ranks (dp 2, tp 2, pp 2) at a random moment, and 15 of 4 ranks (ZeRO 3 with tp; interleaved with ZeRO 1; zb-h1). Each time the others end by themselves with code 3 and name the dead rank, and the resumed run has the undisturbed one's loss and checkpoint, to the bit",
		command: "GTC_LONG=1 go test -count=1 ./tests/e2e -run RandomKills -v", takes: 15 * time.Minute,
		reads: reading{regexp.MustCompile(`killed after`), "$n kills, all as they must be", counted}},
	{name: "memory", group: "Training", what: "Memory of a rank that trains the GPT: the arena as planned, to the byte, and what the process holds beside it and the weights",
		command: "go test -count=1 ./tests/e2e -run TestArenaIsWhatThePlanSays -v", takes: time.Minute,
		reads: reading{regexp.MustCompile(`at most \S+ MiB: (\S+ MiB) beyond arena and weights`), "$1 beyond arena and weights", last}},

	{name: "models", group: "Beside PyTorch in float64", what: "Every file of `../shared/models` but the two whose BatchNorm the exporter folded away, on one rank, two, and two with two micro-batches",
		command: "GTC_LONG=1 go test -count=1 -timeout 60m ./tests/models -run TestModels -v", takes: 30 * time.Minute, needs: []string{"../shared"},
		reads: reading{checked, "$n comparisons: outputs within $1, losses $2, gradients $3, curves $4", worst}},
	{name: "layouts", group: "Beside PyTorch in float64", what: "The same models in 25 layouts of dp, tp, sp, pp and ZeRO, simulated: each rank's program is interpreted in float64",
		command: "go test -count=1 -timeout 60m ./tests/parallel -run TestGrid -v -args -grid", takes: 10 * time.Minute, needs: []string{"../shared"},
		reads:  reading{checked, "$n comparisons: outputs within $1, losses $2, gradients $3, curves $4", worst},
		beside: "Models with BatchNorm refuse the interleaved schedule, for their micro-batches are merged."},
	{name: "processes", group: "Beside PyTorch in float64", what: "11 layouts as processes, with kernels",
		command: "GTC_LONG=1 go test -count=1 -timeout 60m ./tests/parallel -run TestProcesses -v", takes: 20 * time.Minute, needs: []string{"../shared"},
		reads: reading{checked, "$n comparisons: outputs within $1, losses $2, gradients $3, curves $4", worst}},
	{name: "families", group: "Beside PyTorch in float64", what: "Small models of 28 families, each as TorchScript, gtc.export and the dynamo exporter's defaults write it",
		command: "tests/torch/run.sh families.py resnet mobilenet_v2 mobilenet_v3 efficientnet densenet convnext vit unet vae gan_generator bert roberta distilbert gpt2 llama qwen2 qwen3 gemma gemma3 " +
			"mixtral qwen3_moe whisper lstm gru rnn moe_dense moe_gather selective_scan mamba",
		takes: 60 * time.Minute, needs: []string{"PyTorch (GTC_VENV)"}, reads: reading{regexp.MustCompile(`(?m)^(\d+ files: .*)$`), "$1", last}},
	{name: "curves", group: "Beside PyTorch in float64", what: "Loss curves of the shared models over 200 steps of AdamW, half precision against fp32: how far off the worst step of any is, in per cent",
		command: "GTC_LONG=1 go test -count=1 -timeout 60m ./tests/models -run TestCurves -v", takes: 20 * time.Minute, needs: []string{"../shared"},
		reads: reading{regexp.MustCompile(`at most (\S+) % apart`), "$n curves: $1 %", worst}},

	{name: "onnx", group: "ONNX", what: "The ONNX project's backend test cases, through the interpreter and generated C kernels",
		command: "go test -count=1 ./tests/onnx -run TestBackend -v", takes: 5 * time.Minute, needs: []string{"../shared"},
		reads:  reading{regexp.MustCompile(`(\d+ of \d+ cases pass: .*)`), "$1", last},
		beside: "Those that do not pass (strings, image decoding) are left out by design."},
	{name: "onnx-gradients", group: "ONNX", what: "Gradients of these cases against central differences in float64; none differs",
		command: "go test -count=1 ./tests/onnx -run 'TestGradients$' -v", takes: 3 * time.Minute, needs: []string{"../shared"},
		reads: reading{regexp.MustCompile(`(\d+) gradients agree with central differences; (\d+) cases have no float`), "$1 agree; $2 have no float to differentiate", last}},
	{name: "importing", group: "ONNX", what: "Importing graphs of many nodes",
		command: "GTC_LONG=1 go test -count=1 ./frontend/onnx -run TestGrowth -v", takes: time.Minute, needs: []string{"a quiet machine"},
		reads: reading{regexp.MustCompile(`(\d+) nodes, \d+ bytes: ([^,]+),`), "$1 nodes in $2", every}},
	{name: "external-weights", group: "ONNX", what: "Importing 2.1 GiB of weights in a file of their own: memory beyond the file's pages",
		command: "go test -count=1 ./frontend/onnx -run TestLargeExternalData -v", takes: time.Minute,
		reads:  reading{regexp.MustCompile(`of 2.1 GiB took (-?\d+) KiB`), "$1 KiB", last},
		beside: "That is the heap of a process that has done nothing before; in one that has, less than 0.4 MiB are added."},

	{name: "step", group: "Speed", what: "A training step of the examples, fp32, two threads, gtc and PyTorch eager in turn: PyTorch's time over gtc's",
		command: "go run ./bench/step", takes: 5 * time.Minute, needs: []string{"PyTorch (GTC_VENV)", "a quiet machine"},
		reads:  reading{regexp.MustCompile(`(?m)^(\w+), \d+ rounds[^\n]*\n(?:.*\n)*?  torch / gtc` + ratios), "$1 $3 ($2 to $4)", every},
		beside: "The CNN of `examples/mnist` is a toy with pictures of 28x28; larger CNNs were not measured."},
	{name: "sparse", group: "Speed", what: "A training step with an embedding table of 4 million rows, of which each batch looks up few, on one thread: gtc's time over that of PyTorch with sparse=True",
		command: "go run ./bench/sparse", takes: 5 * time.Minute, needs: []string{"PyTorch (GTC_VENV)", "a quiet machine"},
		reads: reading{regexp.MustCompile(`(?m)^(\w+): table[^\n]*\n(?:.*\n)*?  gtc / torch` + ratios), "$1 $3 ($2 to $4)", every}},
	{name: "comm", group: "Speed", what: "all_reduce of 64 MiB between processes of one host, gtc and Open MPI in turn: gtc's bandwidth over Open MPI's",
		command: "chrt -f 10 go run ./bench/comm", takes: 3 * time.Minute, needs: []string{"Open MPI", "a quiet machine"},
		reads: reading{regexp.MustCompile(`(?m)between (\d+) processes[^\n]*\n(?:.*\n)*?  gtc / mpi` + ratios), "$1 processes $3 ($2 to $4)", every}},
	{name: "half", group: "Speed", what: "A step of a small GPT in half precision, and its arena, beside fp32's, on a CPU",
		command: "go build -o bin/gtc ./cmd/gtc && go run ./examples/shakespeare/prepare &&\nfor p in fp32 bf16 fp16; do bin/gtc compile examples/shakespeare/gpt.onnx -o gtc-out/$p --precision $p --batch 12 --loss cross_entropy --optimizer adamw &&\n" +
			"bin/gtc run gtc-out/$p --data examples/shakespeare/train.bin --steps 300 --checkpoint-dir none --json\ndone",
		takes: 2 * time.Minute, needs: []string{"a quiet machine"},
		reads: reading{regexp.MustCompile(`"event":"end".*"step_seconds":([0-9.e-]+),"arena_bytes":(\d+)`), "$1 s a step, arena of $2 bytes", every}, beside: "In the order fp32, bf16, fp16."},

	{name: "depth", group: "Compiling", what: "Wall time of compiling a GPT-2 of 12 layers over one of 2, kernels not cached, building included (the last column)",
		command: "go run ./bench/compile -build -layers 2,12 ../shared/models/gpt2_tiny.dynamo.onnx", takes: 2 * time.Minute, needs: []string{"../shared", "a quiet machine"},
		reads: reading{regexp.MustCompile(`(?m)^ +12 .* (\S+)$`), "$1", last}},
	{name: "large", group: "Compiling", what: "175 billion parameters on 1,024 ranks, without their weights",
		command: "go run ./bench/compile/large -tp 8 -pp 8 -zero 1 -sp", takes: time.Minute, needs: []string{"a quiet machine"},
		reads: reading{regexp.MustCompile(`compiled +(.*)\ntime +(\S+ s).*\ngtc .*largest resident set (\S+ GiB)`), "$1; $2, $3 of memory", last}},
	{name: "gpt2-plan", group: "Compiling", what: "GPT-2 124M, batch 32 x 1,024, bf16, AdamW with clipping, for NVIDIA GPUs: kernels and memory of the plan",
		command: "go run ./bench/compile/large -target cuda -precision bf16 -dp 1 -microbatches 1 -samples 32 -layers 12 -width 768 -heads 12 -vocab 50257 -seq 1024 -tied",
		takes:   2 * time.Minute,
		reads:   reading{regexp.MustCompile(`compiled +(.*)`), "$1", last}},

	{name: "cuda-models", group: "GPUs", what: "Shared models as programs for a GPU, on the stand-in for its driver, against PyTorch in float64, with checks for races, bounds and barriers",
		command: "GTC_LONG=1 go test -count=1 -timeout 120m ./tests/cuda -run TestModels -v", takes: 90 * time.Minute, needs: []string{"../shared"},
		reads: reading{checked, "$n comparisons: outputs within $1, losses $2, gradients $3, curves $4", worst}},
	{name: "spills", group: "GPUs", what: "All kernels of shared models in fp32 and bf16, compiled for sm_80 and sm_90: those of the pointwise and reduction families keep their values in registers",
		command: "GTC_LONG=1 go test -count=1 -timeout 60m ./tests/cuda -run TestNoSpills -v", takes: 20 * time.Minute, needs: []string{"../shared", "NVRTC"},
		reads: reading{regexp.MustCompile(`kernels by family: (.*)`), "none spills; by family $1", last}},
	{name: "gpu", group: "GPUs", what: "Tokens, images and steps a second, FLOP/s and memory on a GPU",
		command: "GTC_VENV=VENV go run ./tests/gpu/prepare -out KIT -arch sm_90 && KIT/run.sh 340", takes: 60 * time.Minute, needs: []string{"PyTorch (GTC_VENV)", "a GPU"},
		reads: reading{regexp.MustCompile(`(?m)^gtc .*`), "$0", every}},
}
