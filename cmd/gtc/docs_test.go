package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/cli.md and testdata/public.txt")

// golden compares with a file, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	a, b := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s line %d is\n\t%s\nnow it would be\n\t%s\ngo generate ./cmd/gtc writes it", path, i+1, a[i], b[i])
		}
	}
	t.Fatalf("%s has %d lines, now it would have %d; go generate ./cmd/gtc writes it", path, len(a), len(b))
}

// commands lists the commands that are documented, each after the one it belongs to.
func commands(root *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if !c.Hidden {
			list = append(list, commands(c)...)
		}
	}
	return list
}

// tree is the root command with what cobra adds when it runs.
func tree() *cobra.Command {
	root := newRoot()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range commands(root) {
		c.InitDefaultHelpFlag()
	}
	return root
}

// TestDocs holds docs/cli.md to the commands and flags that there are.
func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString("# The gtc command\n\n<!-- Made from cmd/gtc by go generate ./cmd/gtc; edit the help texts there. -->\n")
	for _, c := range commands(tree()) {
		document(&b, c)
	}
	golden(t, "../../docs/cli.md", b.String())
}

func document(b *strings.Builder, c *cobra.Command) {
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	fmt.Fprintf(b, "\n## %s\n\n", c.CommandPath())
	if c.Runnable() {
		fmt.Fprintf(b, "    %s\n\n", c.UseLine())
	}
	if strings.HasPrefix(c.CommandPath(), "gtc completion ") {
		fmt.Fprintf(b, "%s; `%s --help` tells how to install it.\n", c.Short, c.CommandPath())
		return
	}
	paragraphs(b, long)
	if c.Example != "" {
		fmt.Fprintf(b, "\nFor example:\n\n%s\n", indent(c.Example))
	}
	flags := ""
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			flags += flagRow(f)
		}
	})
	if flags != "" {
		fmt.Fprintf(b, "\n| flag | meaning | default |\n|---|---|---|\n%s", flags)
	}
}

// paragraphs writes help text as Markdown: what is indented there becomes code.
func paragraphs(b *strings.Builder, text string) {
	code, blank := false, true
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		isCode := strings.HasPrefix(line, "  ")
		if isCode != code && line != "" {
			if !blank {
				b.WriteString("\n")
			}
			code = isCode
		}
		if isCode {
			line = "    " + strings.TrimSpace(line)
		}
		b.WriteString(line + "\n")
		blank = line == ""
	}
}

func indent(s string) string {
	var out []string
	for _, l := range strings.Split(s, "\n") {
		out = append(out, "    "+strings.TrimSpace(l))
	}
	return strings.Join(out, "\n")
}

func flagRow(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "`--" + f.Name
	if value != "" {
		name += " " + value
	}
	name += "`"
	if f.Shorthand != "" {
		name += ", `-" + f.Shorthand + "`"
	}
	def := f.DefValue
	if def == "[]" || def == "" || def == "false" {
		def = ""
	} else {
		def = "`" + def + "`"
	}
	return fmt.Sprintf("| %s | %s | %s |\n", name, strings.ReplaceAll(usage, "|", "\\|"), def)
}

// TestPublic freezes what scripts rely on: names of commands and flags, fields of JSON output and files, exit codes.
// A name may be added; to remove or rename one breaks users.
func TestPublic(t *testing.T) {
	var b strings.Builder
	for _, c := range commands(tree()) {
		var flags []string
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			name := "--" + f.Name
			if f.Shorthand != "" {
				name += "/-" + f.Shorthand
			}
			flags = append(flags, name)
		})
		slices.Sort(flags)
		fmt.Fprintf(&b, "%s: %s\n", c.CommandPath(), strings.Join(flags, " "))
	}
	fmt.Fprintf(&b, "\ngtc run, for the ranks: %s\n\n", strings.Join(rankFlagNames(), " "))
	for _, x := range []struct {
		name string
		v    any
	}{{"gtc check --json", check.Report{}}, {"gtc inspect --json", onnx.Info{}}, {"gtc.json", abi.Manifest{}}} {
		fmt.Fprintf(&b, "%s:\n", x.name)
		fields(&b, reflect.TypeOf(x.v), "  ")
	}
	fmt.Fprintf(&b, "\nexit codes: ok %d, failed %d, usage %d, signals from %d\n", exitOK, exitFailed, exitUsage, exitSignal)
	golden(t, "testdata/public.txt", b.String())
}

// fields lists the JSON fields of a struct, nested ones indented.
func fields(b *strings.Builder, t reflect.Type, in string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		inner := f.Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		fmt.Fprintf(b, "%s%s %s\n", in, name, kind(f.Type))
		if inner.Kind() == reflect.Struct {
			fields(b, inner, in+"  ")
		}
	}
}

// kind is the JSON type of a Go type.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		return "list of " + kind(t.Elem())
	case reflect.Pointer:
		return kind(t.Elem())
	case reflect.Struct:
		return "object"
	case reflect.Map:
		return "map to " + kind(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	}
	return "number"
}
