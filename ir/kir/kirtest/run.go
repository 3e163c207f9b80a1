package kirtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cpu"
)

// RunC prints the kernels as C functions of pointers to their params, and to the workspace where they have one, and compiles them
// after what head gives for the text, with the flag, into one program. It reads their buffers, calls them, on one thread
// and on two, and writes the buffers, which are held to Eval.
func RunC(t *testing.T, list []*Kernel, flag string, print func(name string, k *kir.Kernel) (string, error), head func(text string) string) {
	t.Helper()
	dir := t.TempDir()
	var text, calls strings.Builder
	var in []byte
	for _, k := range list {
		f, err := print(k.Name, k.Kernel)
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		text.WriteString(f)
		calls.WriteString(call(k))
		for i, p := range k.Kernel.Params {
			in = append(in, k.Before[i].Bytes(p.DType)...)
		}
	}
	source := "#include <stdio.h>\n#include <stdlib.h>\n" + head(text.String()) + text.String() + reader + "int main(int argc, char **argv) {\n\tgtc_threads = atoi(argv[1]);\n" + calls.String() + "}\n"
	for name, data := range map[string]string{"gtc_math.h": cpu.MathHeader, "a.c": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "a")
	if out, err := exec.Command("gcc", flag, "-std=gnu11", "-march=native", "-fopenmp", "-Wno-unused", "-o", bin, filepath.Join(dir, "a.c"), "-lm").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, threads := range []string{"1", "2"} {
		cmd := exec.Command(bin, threads)
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list {
			var got [][]byte
			for _, p := range k.Kernel.Params {
				n := p.Elems * p.DType.Size()
				if len(out) < n {
					t.Fatalf("%s: %d bytes are missing", k.Name, n-len(out))
				}
				got, out = append(got, out[:n]), out[n:]
			}
			k.Check(t, got)
		}
	}
}

// reader reads and writes buffers.
const reader = `
static void *get(size_t n) {
	void *p = aligned_alloc(64, (n + 64) / 64 * 64);
	if (fread(p, 1, n, stdin) != n) exit(3);
	return p;
}
`

// call is the C of one call.
func call(k *Kernel) string {
	var b strings.Builder
	var args []string
	b.WriteString("\t{\n")
	size := func(p kir.Param) int { return p.Elems * p.DType.Size() }
	for i, p := range k.Kernel.Params {
		fmt.Fprintf(&b, "\t\tvoid *a%d = get(%d);\n", i, size(p))
		args = append(args, fmt.Sprintf("a%d", i))
	}
	if k.Kernel.Work > 0 {
		args = append(args, fmt.Sprintf("aligned_alloc(64, %d)", k.Kernel.Work))
	}
	fmt.Fprintf(&b, "\t\t%s(%s);\n", k.Name, strings.Join(args, ", "))
	for i, p := range k.Kernel.Params {
		fmt.Fprintf(&b, "\t\tfwrite(a%d, 1, %d, stdout);\n", i, size(p))
	}
	b.WriteString("\t}\n")
	return b.String()
}
