package tests

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers lists the packages from the bottom up. A package may import only packages on lines above its own, so
// packages on one line never see one another. The first word is the tower:
//
//	both   leaves that both towers stand on; they import only one another
//	run    linked into rank programs: besides itself it imports leaves and the standard library, nothing else
//	gtc    the compiler: itself and leaves, nothing of the run-time
//	tool   programs that a person starts: they may also start ranks
//	test   only tests import these
const layers = `
both  ir/dtype ir/factor distributed/mesh distributed/schedule runtime/internal/mapfile
both  runtime/abi kernels/cpu distributed/topo
both  runtime/npz runtime/safetensors runtime/printable runtime/nvrtc runtime/dynlib runtime/filelock
test  internal/fixtures internal/mutations

run   distributed/comm/internal/elem
run   runtime/mem runtime/internal/trace runtime/device runtime/device/cuda/driver distributed/comm
test  distributed/comm/commtest runtime/device/devicetest
run   distributed/comm/mpi distributed/comm/nccl runtime/device/cuda runtime/device/cpu
run   runtime/data runtime/ckpt
run   runtime/train/internal/program
run   runtime/train/internal/ranks
run   runtime/train/internal/machine
run   runtime/train/internal/report
run   runtime/train/internal/loop
run   runtime/train

gtc   ir/kir target/launch target/cuda/internal/chip
gtc   kernels/cuda
test  ir/kir/kirtest
gtc   kernels/cuda/standin
gtc   kernels/cuda/cudatest/carry
test  kernels/cuda/cudatest
gtc   ir
gtc   ir/group ir/ops ir/cost codegen/scalar
gtc   codegen/c codegen/cuda target
gtc   target/cuda/image
gtc   target/cpu target/cuda target/ref
gtc   ir/grad codegen/kernel
sim   ir/interp
test  ir/irtest
gtc   frontend/onnx/onnxpb
test  frontend/onnx/onnxtest
gtc   frontend/onnx/internal/model
gtc   frontend/onnx/internal/fold
gtc   frontend/onnx/internal/roles
gtc   frontend/onnx/internal/walk
gtc   frontend/onnx/internal/rules/arrays
gtc   frontend/onnx/internal/rules/layers
gtc   frontend/onnx/internal/rules/flow
gtc   frontend/onnx/internal/rules/domains
gtc   frontend/onnx
gtc   passes/pass
test  passes/passtest
gtc   passes/algebra passes/layout passes/samples
gtc   passes/lora passes/normalize passes/recognize passes/trainstep passes/unstack passes/autodiff passes/precision passes/optimizer passes/simplify
gtc   passes/compress passes/microbatch passes/rows passes/shard passes/spmd passes/stage passes/tree passes/overlap passes/epilogue passes/fuse passes/schedule passes/memplan passes/multitensor
gtc   passes
gtc   distributed kernels runtime
gtc   codegen/rank codegen/build
test  codegen/codegentest
gtc   compiler/internal/ahead compiler/internal/plan compiler/internal/proof
gtc   compiler
gtc   compiler/folder compiler/timeline
gtc   compiler/volume
gtc   compiler/explain

tool  distributed/launch
tool  compiler/bisect compiler/check compiler/export compiler/gpus
tool  frontend/onnx/onnxgo
tool  .
tool  cmd/gtc
tool  kernels/cpu/bench
`

// outer are folders of programs and tests that use the whole and that nothing outside them imports: they need no line in
// the table.
var outer = []string{"tests", "bench", "examples"}

// towers says which towers a tower may import.
var towers = map[string][]string{
	"both": {"both"},
	"run":  {"both", "run"},
	"gtc":  {"both", "gtc"},
	"sim":  {"both", "gtc", "sim"},
	"tool": {"both", "run", "gtc", "sim", "tool"},
	"test": {"both", "run", "gtc", "sim", "test"},

	"outer": {"both", "run", "gtc", "sim", "tool", "test"}, // below tests/
}

// outside lists who may import which third-party module. Everything else is the standard library.
var outside = map[string]string{
	"frontend/onnx/onnxpb": "github.com/gogo/protobuf",
	"examples/onnxgo":      "github.com/owulveryck/onnx-go gorgonia.org/tensor",
	"frontend/onnx/onnxgo": "go4.org/unsafe/assume-no-moving-gc github.com/owulveryck/onnx-go gonum.org/v1/gonum gorgonia.org/tensor github.com/gogo/protobuf",
	"runtime/dynlib":       "github.com/ebitengine/purego",
	"runtime/nvrtc":        "github.com/ebitengine/purego",
	"compiler/gpus":        "github.com/NVIDIA/go-nvml",
	"codegen/rank":         "github.com/dave/jennifer",
	"cmd/gtc":              "github.com/spf13/cobra github.com/spf13/pflag",
	"passes":               "golang.org/x/tools",
	"ir/irtest":            "golang.org/x/tools",
}

// crossings are the only imports of run-time packages from the compiler: the plan's structs, the formats of the
// files that it writes and reads, how names are shown, and who may write a folder.
const crossings = "runtime/abi runtime/safetensors runtime/npz runtime/printable runtime/nvrtc runtime/filelock"

// commands is what cmd/gtc may import of the module: it holds flags and printing, and what it would need besides
// belongs into a package below it. passes/optimizer is there for the names of its rules, runtime/train for the flags of
// rank programs, both printed in the help.
const commands = "runtime/printable . compiler compiler/folder compiler/bisect compiler/check compiler/gpus compiler/explain compiler/export compiler/timeline compiler/volume passes passes/pass passes/optimizer ir ir/cost ir/ops frontend/onnx " +
	"distributed/launch distributed/schedule distributed/topo runtime/abi runtime/train"

const modulePath = "github.com/gtc-compiler/gtc"

// root is the repository's root as seen from this folder.
const root = ".."

// sourceFile is one Go file of the repository.
type sourceFile struct {
	path    string // from the root, with slashes
	pkg     string // its folder, "." for the root
	test    bool
	imports []string
}

// sourceFiles reads every Go file of the module, nested modules and test data apart. It reads the files itself: go test
// caches results by the files that the test opens, and would not see those of a child process.
func sourceFiles(t *testing.T) []sourceFile {
	t.Helper()
	var files []sourceFile
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(path, "go.mod"))
			if path != root && (nested == nil || name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		f := sourceFile{path: rel, pkg: filepath.ToSlash(filepath.Dir(rel)), test: strings.HasSuffix(name, "_test.go")}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, p)
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go file was found")
	}
	return files
}

// place is where a package stands.
type place struct {
	line  int
	tower string
}

// places reads the table.
func places(t *testing.T) map[string]place {
	t.Helper()
	at := map[string]place{}
	for n, line := range strings.Split(layers, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if towers[words[0]] == nil {
			t.Fatalf("layers: %q is no tower", words[0])
		}
		for _, pkg := range words[1:] {
			if at[pkg].line != 0 {
				t.Fatalf("layers: %s is listed twice", pkg)
			}
			at[pkg] = place{line: n, tower: words[0]}
		}
	}
	return at
}

// inModule gives the folder of an import of this module.
func inModule(imported string) (string, bool) {
	if imported == modulePath {
		return ".", true
	}
	return strings.CutPrefix(imported, modulePath+"/")
}

// standard reports whether an import is of the standard library: its first element has no dot.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// TestLayers holds the imports of every package to the policy above. Files of tests may import any package that is not a
// program, but no more modules.
func TestLayers(t *testing.T) {
	at, seen := places(t), map[string]bool{}
	for _, f := range sourceFiles(t) {
		seen[f.pkg] = true
		here, ok := at[f.pkg]
		if top := topFolder(f.pkg); slices.Contains(outer, top) {
			here, ok = place{line: len(layers), tower: "tool"}, true
			if top == "tests" { // its programs prepare what tests need elsewhere
				here.tower = "outer"
			}
		}
		if !ok {
			t.Errorf("%s: package %s is not in the table of layers: add it on the lowest line that its imports allow", f.path, f.pkg)
			continue
		}
		for _, imported := range f.imports {
			if why := forbidden(at, f, here, imported); why != "" {
				t.Errorf("%s imports %s: %s", f.path, imported, why)
			}
		}
	}
	for pkg := range at {
		if !seen[pkg] {
			t.Errorf("the table of layers lists %s, which does not exist", pkg)
		}
	}
}

// topFolder is the first folder of a path with slashes.
func topFolder(pkg string) string {
	top, _, _ := strings.Cut(pkg, "/")
	return top
}

// forbidden says why file f may not import imported, or "".
func forbidden(at map[string]place, f sourceFile, here place, imported string) string {
	if imported == "C" || standard(imported) {
		return ""
	}
	pkg, ours := inModule(imported)
	if !ours {
		for _, mod := range strings.Fields(outside[f.pkg]) {
			if imported == mod || strings.HasPrefix(imported, mod+"/") {
				return ""
			}
		}
		if f.test && strings.HasPrefix(imported, "golang.org/x/tools/") {
			return ""
		}
		return "the table of outside modules does not allow it here"
	}
	there, ok := at[pkg]
	switch {
	case !ok && slices.Contains(outer, topFolder(pkg)) && slices.Contains(outer, topFolder(f.pkg)):
		return ""
	case !ok:
		return "it is not in the table of layers"
	case f.test:
		if strings.HasPrefix(pkg, "cmd/") {
			return "tests reach a program by running it"
		}
		return ""
	case !slices.Contains(towers[here.tower], there.tower):
		return "tower " + here.tower + " may not import tower " + there.tower
	case there.line >= here.line:
		return "it is not on a line above"
	case here.tower == "gtc" && strings.HasPrefix(pkg, "runtime/") && !slices.Contains(strings.Fields(crossings), pkg):
		return "the compiler and the run-time meet only at " + crossings
	case f.pkg == "cmd/gtc" && !slices.Contains(strings.Fields(commands), pkg):
		return "cmd/gtc holds flags and printing; move the work below it"
	}
	return ""
}

// TestLayersNotice: the policy refuses what it should.
func TestLayersNotice(t *testing.T) {
	at := places(t)
	cases := []struct{ pkg, imported, want string }{
		{"passes/fuse", "passes/memplan", "it is not on a line above"},
		{"ir", "ir/ops", "it is not on a line above"},
		{"runtime/train", "ir", "tower run may not import tower gtc"},
		{"codegen/rank", "runtime/data", "tower gtc may not import tower run"},
		{"passes/fuse", "ir/interp", "tower gtc may not import tower sim"},
		{"passes", "runtime/internal/mapfile", "the compiler and the run-time meet only at"},
		{"cmd/gtc", "passes/fuse", "cmd/gtc holds flags and printing"},
		{"runtime/train", "runtime/abi", ""},
		{"compiler", "passes", ""},
	}
	for _, c := range cases {
		got := forbidden(at, sourceFile{pkg: c.pkg}, at[c.pkg], modulePath+"/"+c.imported)
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s imports %s: %q, want %q", c.pkg, c.imported, got, c.want)
		}
	}
	f := sourceFile{pkg: "runtime/data"}
	if why := forbidden(at, f, at[f.pkg], "golang.org/x/sys/unix"); why == "" {
		t.Error("a third-party import of the run-time was let through")
	}
}
