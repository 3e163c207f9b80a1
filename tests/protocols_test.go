package tests

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// protocols are strings by which packages tell one another something that the compiler of Go does not check. Each is spelled out in one
// package, which has names, and where they have parts, a constructor and a parser for them; others use those. Tests spell them out: they
// are what users and files see.
var protocols = []struct {
	what, home string
	is         *regexp.Regexp // a string literal that is of the protocol
}{
	{"a prefix of names", "runtime/abi/names.go", regexp.MustCompile(`^(grad|optim|accum|whole|stash|back|const|curve|step)/`)},
	{"a name of state", "runtime/abi/names.go", regexp.MustCompile(`^(empty_steps|noise_seed|loss_scale.*|sample_weight)$`)},
	{"a collective", "distributed/mesh/collective.go", regexp.MustCompile(`^(all_reduce|all_gather|reduce_scatter|all_to_all|shard_slice|send|recv)$`)},
	{"a mesh axis", "distributed/mesh/mesh.go", regexp.MustCompile(`^(dp|tp|pp|mb)$`)},
	{"a name of functions", "runtime/abi/functions.go", regexp.MustCompile(`^((fwd|bwd|wgrad|merge)\..*|fwd|bwd|wgrad)$`)},
	{"a name of a result", "runtime/abi/names.go", regexp.MustCompile(`^(loss_sum|grad_norm)$`)},
}

// spelled lists the files that spell out strings which only look like those of a protocol, or are another's too.
var spelled = map[string]string{
	"a collective in cmd/gtc/schedule.go":                           "--send is a flag",
	"a mesh axis in cmd/gtc/compile.go":                             "cmd/gtc holds flags and printing, and does not know of meshes",
	"a mesh axis in cmd/gtc/elsewhere.go":                           "--dp, --tp and --pp are flags",
	"a mesh axis in cmd/gtc/flags.go":                               "the same",
	"a mesh axis in cmd/gtc/schedule.go":                            "the same",
	"a mesh axis in runtime/train/internal/loop/flags.go":           "the same",
	"a mesh axis in runtime/train/internal/loop/resume.go":          "the same",
	"a name of functions in kernels/cuda/conv.go":                   "fwd and wgrad are kinds of convolutions (abi.Convolution)",
	"a name of functions in kernels/cuda/conv_tile.go":              "the same",
	"a name of functions in runtime/device/cuda/dnn.go":             "the same",
	"a name of functions in runtime/device/cuda/dnn_conv.go":        "the same",
	"a name of a result in runtime/train/internal/report/report.go": "fields of the JSON events, which are public",
	"a name of state in runtime/train/internal/report/report.go":    "the same",
}

// TestProtocols: no string of a protocol is spelled out beside its home.
func TestProtocols(t *testing.T) {
	found := map[string]bool{}
	for _, f := range handWritten(t) {
		if strings.HasSuffix(f.path, "_test.go") || outerProgram(f.pkg) {
			continue
		}
		for _, lit := range literals(f.ast) {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range protocols {
				if f.path == p.home || !p.is.MatchString(text) {
					continue
				}
				key := p.what + " in " + f.path
				if found[key] = true; spelled[key] == "" {
					t.Errorf("%s spells out %s, %s: %s has a name for it", f.where(lit.Pos()), p.what, lit.Value, p.home)
				}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(spelled)) {
		if !found[key] {
			t.Errorf("nothing spells out %s any more", key)
		}
	}
}

// outerProgram reports whether a package is of a test, benchmark or example, which see programs as users do.
func outerProgram(pkg string) bool {
	top, _, _ := strings.Cut(pkg, "/")
	return slices.Contains(outer, top) || strings.HasSuffix(pkg, "test")
}

// literals lists the strings of a file, but for those of imports.
func literals(file *ast.File) []*ast.BasicLit {
	var out []*ast.BasicLit
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			out = append(out, lit)
		}
		_, imports := n.(*ast.ImportSpec)
		return !imports
	})
	return out
}
