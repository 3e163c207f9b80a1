package main

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/train"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// foreign are flags of other programs that the documents mention, those of tests/gpu among them, and what stands for any.
var foreign = []string{"no-python", "nproc-per-node", "nproc_per_node", "nnodes", "node-rank", "node_rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv_backend",
	"rdzv_endpoint", "master-addr", "master-port", "ntasks", "ntasks-per-node", "gpus-per-node", "help", "version", "layers", "width", "heads", "flag"}

var mentioned = regexp.MustCompile("(?:^|[\\s`(\\[])--([a-z][a-z0-9_-]*[a-z0-9])")

// documents are the texts that make statements about the program; those that are generated from it are compared elsewhere.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, pattern := range []string{"../../README.md", "../../*/README.md", "../../*/*/README.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	out := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(filepath.ToSlash(f), "../../")] = string(text)
	}
	return out
}

// TestDocsMentionFlags: each --flag that a document mentions is one of some command, or of the ranks.
func TestDocsMentionFlags(t *testing.T) {
	known := slices.Clone(foreign)
	for _, c := range newRoot().Commands() {
		c.InitDefaultHelpFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	}
	train.Flags().VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	for name, text := range documents(t) {
		for _, m := range mentioned.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s mentions --%s, which no command has", name, m[1])
			}
		}
	}
}

// TestDocsClaims: sentences that go out of date in silence are not written: what is not there is refused by the program, and its
// message is what a test looks at.
func TestDocsClaims(t *testing.T) {
	stale := regexp.MustCompile(`(?i)there is no [a-z ]+ yet|takes [a-z0-9]+ only`)
	for name, text := range documents(t) {
		if m := stale.FindString(strings.Join(strings.Fields(text), " ")); m != "" {
			t.Errorf("%s says %q, which nothing holds to the program", name, m)
		}
	}
}

// TestDocsCommands: the commands in the documents' blocks have flags that their commands take.
func TestDocsCommands(t *testing.T) {
	n := 0
	for name, text := range documents(t) {
		text = strings.ReplaceAll(text, "\\\n", " ")
		for _, line := range strings.Split(text, "\n") {
			line = strings.TrimPrefix(strings.TrimSpace(strings.TrimPrefix(line, "    ")), "$ ")
			line = strings.TrimPrefix(line, "bin/")
			if !strings.HasPrefix(line, "gtc ") || strings.ContainsAny(line, "`|<>\"'…[") || strings.HasSuffix(line, ".") {
				continue
			}
			args, _, _ := strings.Cut(line, " #")
			words := longFlags(newRoot(), strings.Fields(args)[1:])
			cmd, rest, err := newRoot().Find(words)
			if err != nil || !strings.HasPrefix(cmd.CommandPath(), "gtc ") {
				continue // a sentence
			}
			n++
			if err := parses(cmd, rest); err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d commands were found", n)
	}
}

// parses reports what is wrong with the flags of a command line.
func parses(cmd *cobra.Command, args []string) error {
	if !cmd.DisableFlagParsing {
		return cmd.ParseFlags(args)
	}
	if len(args) < 1 {
		return nil
	}
	fs := train.Flags()
	return fs.Parse(slices.DeleteFunc(slices.Clone(args[1:]), func(a string) bool { return a == "…" }))
}

// written is the text of all sources, in which what documents speak of must occur.
func written(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "docs" || d.Name() == "gtc-out" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2):
			return filepath.SkipDir
		case !slices.Contains([]string{".go", ".py", ".sh", ".h", ".cuh", ".c", ".cc", ".cpp"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

var (
	testNames = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z][A-Za-z0-9]+`)
	variables = regexp.MustCompile(`\bGTC_[A-Z0-9_]+\b`)
	links     = regexp.MustCompile(`\]\(([^)#:\s]*[a-z/][^)#:\s]*)(?:#[^)]*)?\)`)
	packages  = regexp.MustCompile(`go (?:test|run|build) (?:-[a-z]+(?: [0-9a-z]+)? )*(\./[a-z0-9_/]+)`)
)

// TestDocsPython: what documents call of the Python package is in it.
func TestDocsPython(t *testing.T) {
	text, err := os.ReadFile("../../python/gtc/__init__.py")
	if err != nil {
		t.Fatal(err)
	}
	n, calls := 0, regexp.MustCompile(`\bgtc\.([a-z_]+)\(`)
	for name, doc := range documents(t) {
		for _, m := range calls.FindAllStringSubmatch(doc, -1) {
			if n++; !regexp.MustCompile(`\b` + m[1] + `\b`).Match(text) {
				t.Errorf("%s calls gtc.%s, which python/gtc does not give", name, m[1])
			}
		}
	}
	if n < 5 {
		t.Errorf("only %d calls were found", n)
	}
}

// TestDocsNames: tests, variables, files and packages that a document names are there.
func TestDocsNames(t *testing.T) {
	sources, n := written(t), 0
	for name, text := range documents(t) {
		in := func(what string, re *regexp.Regexp, there func(string) bool) {
			for _, m := range re.FindAllStringSubmatch(text, -1) {
				n++
				if s := m[len(m)-1]; !there(s) {
					t.Errorf("%s speaks of the %s %s, which does not exist", name, what, s)
				}
			}
		}
		root := "../.."
		exists := func(folder string) func(string) bool {
			return func(path string) bool {
				_, err := os.Stat(filepath.Join(folder, path))
				return err == nil
			}
		}
		in("test", testNames, func(s string) bool { return strings.Contains(sources, "func "+s) }) // the beginning of a name selects several
		in("variable", variables, func(s string) bool { return strings.Contains(sources, s) })
		in("package", packages, exists(root))
		if name != "docs/cli.md" { // whose brackets are of usages
			in("file", links, exists(filepath.Join(root, filepath.Dir(name))))
		}
	}
	if n < 100 {
		t.Errorf("only %d names were found", n)
	}
}
