package codegentest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Job is one function to compile and run on given contents.
type Job struct {
	Module *ir.Module            // of one function; fuse and memplan change it
	Args   map[string]*ir.Tensor // contents of its parameters by name
	Out    []*ir.Tensor          // set by RunMany: its results by position
	Err    error                 // set by RunMany: why there are none
	plan   pass.Plan             // of its own arena
	source *rank.Source          // of the job by itself
	makers map[*ir.Value]string  // C function or template that makes a value
}

// manyRunner is the main program: it runs the jobs from number os.Args[2] on, each on its own arena, and says on
// standard output which one it begins, so that a crash can be told apart.
const manyRunner = `package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"github.com/gtc-compiler/gtc/kernels/cpu"
	"github.com/gtc-compiler/gtc/runtime/train"
	"gtcout/prog%d"
)

var jobs = []struct {
	number int
	program *train.Program
}{
%s}

func main() {
	from, err := strconv.Atoi(os.Args[2])
	check(err)
	cpu.SetThreads(2)
	for _, j := range jobs {
		if j.number < from {
			continue
		}
		fmt.Println("begin", j.number)
		name := filepath.Join(os.Args[1], strconv.Itoa(j.number))
		image, err := os.ReadFile(name + ".in")
		check(err)
		const guard = 4096
		buf := make([]byte, len(image)+64+2*guard)
		off := guard + int(-uintptr(unsafe.Pointer(&buf[guard]))&63)
		for i := range buf {
			buf[i] = 0xA5
		}
		arena := buf[off : off+len(image)+1]
		copy(arena, image)
		j.program.SetThreads(2)
		for _, c := range j.program.Funcs["forward"] {
			if bad := c.Run(unsafe.Pointer(&arena[0]), c.At); bad >= 0 {
				fmt.Println("refused", c.Name, "row", bad)
			}
		}
		for _, c := range j.program.Copies["forward"] {
			copy(arena[c.To:c.To+c.Bytes], arena[c.From:c.From+c.Bytes])
		}
		for i, b := range buf {
			if b != 0xA5 && (i < off || i >= off+len(image)) {
				fmt.Println("outside", i-off)
				break
			}
		}
		check(os.WriteFile(name+".out", arena[:len(image)], 0o666))
	}
	fmt.Println("end")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
`

// RunMany fuses, plans, prints, builds and executes many jobs in few compilations: they are spread over packages Go
// packages, whose kernels are one C file each, compiled with optimisation level opt ("-O1"). A job that fails has its
// Err set and harms no other: not when its code does not compile, nor when it crashes or writes outside its arena.
// dir is a scratch folder.
func RunMany(dir string, jobs []*Job, packages int, opt string) error {
	for _, j := range jobs {
		j.prepare(rank.Target{})
	}
	for range len(jobs) + 1 {
		err := buildMany(dir, jobs, packages, opt)
		if err == nil {
			break
		}
		if !blame(jobs, packages, err) {
			return err
		}
	}
	return runMany(dir, jobs, packages)
}

// prepare groups and plans the function for a target, and tries whether its code prints.
func (j *Job) prepare(t rank.Target) {
	defer func() {
		if r := recover(); r != nil {
			j.Err = fmt.Errorf("panic: %v", r)
		}
	}()
	j.Module.Funcs[0].Name = "forward"
	c := &pass.Context{Module: j.Module, Opt: t.Options}
	if c.Opt == nil {
		c.Opt = &pass.Options{}
	}
	if j.Err = planned(c); j.Err != nil {
		return
	}
	j.plan = c.Plan
	j.source, j.Err = rank.Generate("prog", t, rank.Program{Module: j.Module, Plan: j.plan})
}

// buildMany writes and builds the programs of all jobs without a fault, one for each package: kernels of two packages may
// have one name.
func buildMany(dir string, jobs []*Job, packages int, opt string) error {
	f := &build.Folder{Dir: dir, Commands: map[string][]byte{}}
	f.Manifest, _ = json.Marshal(struct{}{})
	for p := range packages {
		var table strings.Builder
		var programs []rank.Program
		for i, j := range jobs {
			if i%packages == p && j.Err == nil {
				programs = append(programs, rank.Program{Module: j.Module, Plan: j.plan, Name: fmt.Sprintf("N%d", i)})
				fmt.Fprintf(&table, "\t{%d, &prog%d.ProgramN%d},\n", i, p, i)
			}
		}
		if len(programs) == 0 {
			f.Programs = append(f.Programs, nil)
			continue
		}
		src, err := rank.Generate(fmt.Sprintf("prog%d", p), rank.Target{}, programs...)
		if err != nil {
			return err
		}
		for i, j := range jobs {
			if i%packages == p {
				j.makers = src.Makers
			}
		}
		src.Files["program.go"] = bytes.Replace(src.Files["program.go"], []byte("CFLAGS: -O3"), []byte("CFLAGS: "+opt), 1)
		f.Programs = append(f.Programs, src.Files)
		f.Commands[fmt.Sprintf("runner%d", p)] = fmt.Appendf(nil, manyRunner, p, table.String())
	}
	if err := build.Write(f); err != nil {
		return err
	}
	return build.Binaries(context.Background(), dir, build.How{})
}

// faults finds the generated functions that the C compiler complains about.
var faults = regexp.MustCompile(`prog(\d+)/kernels\.c: In function '(\w+)'|prog(\d+)/kernels\.c:\d+:\d+: error: (.*)`)

// blame gives the jobs whose kernels do not compile their fault; it reports whether there are any.
func blame(jobs []*Job, packages int, err error) bool {
	found := false
	function := ""
	for _, m := range faults.FindAllStringSubmatch(err.Error(), -1) {
		if m[2] != "" {
			function = m[1] + "/" + m[2]
			continue
		}
		for i, j := range jobs {
			if j.Err == nil && strconv.Itoa(i%packages) == m[3] && j.calls(strings.TrimPrefix(function, m[3]+"/")) {
				j.Err = fmt.Errorf("the generated C does not compile: %s: %s", function, m[4])
				found = true
			}
		}
	}
	return found
}

// calls reports whether the job's function calls C function name.
func (j *Job) calls(name string) bool {
	for _, op := range j.Module.Funcs[0].Ops {
		for _, v := range op.Out {
			if j.makers[v] == name {
				return true
			}
		}
	}
	return false
}

// runMany writes the arenas, runs the programs and reads the results.
func runMany(dir string, jobs []*Job, packages int) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o777); err != nil {
		return err
	}
	for i, j := range jobs {
		if j.Err == nil {
			if err := os.WriteFile(filepath.Join(data, strconv.Itoa(i)+".in"), j.image(), 0o666); err != nil {
				return err
			}
		}
	}
	for p := range packages {
		bin := filepath.Join(dir, "bin", fmt.Sprintf("runner%d", p))
		if _, err := os.Stat(bin); err != nil {
			continue // none of its jobs compiles
		}
		if err := runPackage(bin, data, jobs); err != nil {
			return err
		}
	}
	for i, j := range jobs {
		if j.Err == nil {
			j.Out, j.Err = j.results(filepath.Join(data, strconv.Itoa(i)+".out"))
		}
	}
	return nil
}

// runPackage runs the jobs of one program, again from the next job on after each crash.
func runPackage(bin, data string, jobs []*Job) error {
	for from := 0; from < len(jobs); {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, bin, data, strconv.Itoa(from))
		var errText bytes.Buffer
		cmd.Stderr = &errText
		out, err := cmd.Output()
		cancel()
		at, ended := progress(jobs, out)
		if ended && err == nil {
			break
		}
		if at < from {
			return fmt.Errorf("running the kernels: %w\n%s", err, errText.Bytes())
		}
		first, _, _ := strings.Cut(errText.String(), "\n")
		jobs[at].Err = fmt.Errorf("crashes: %v: %s", err, first)
		from = at + 1
	}
	return nil
}

// progress reads what the runner said: the last job begun, whether it came to the end, and which jobs went wrong.
func progress(jobs []*Job, out []byte) (at int, ended bool) {
	at = -1
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		word, rest, _ := strings.Cut(s.Text(), " ")
		switch word {
		case "begin":
			at, _ = strconv.Atoi(rest)
		case "refused":
			jobs[at].Err = fmt.Errorf("a kernel refuses its operands: %s", rest)
		case "outside":
			jobs[at].Err = fmt.Errorf("a kernel writes outside the arena, at byte %s", rest)
		case "end":
			ended = true
		}
	}
	return at, ended
}

// image is the arena before the run. What nothing has written yet holds NaNs and odd integers.
func (j *Job) image() []byte {
	image := bytes.Repeat([]byte{0xFF}, j.plan.ArenaBytes)
	f := j.Module.Funcs[0]
	for _, p := range f.Params {
		t := j.Args[p.Name]
		if t == nil {
			t = p.Init
		}
		if t != nil {
			copy(image[p.Offset:], t.Data)
		} else {
			clear(image[p.Offset : p.Offset+p.Type.Bytes()])
		}
	}
	for _, op := range f.Ops {
		if group.Impl(op).Kind == kir.Literal {
			copy(image[op.Out[0].Offset:], op.Attrs.(ops.ConstAttrs).Value.Data)
		}
	}
	return image
}

func (j *Job) results(file string) ([]*ir.Tensor, error) {
	arena, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return j.resultsIn(arena)
}

// resultsIn are the results as the arena has them.
func (j *Job) resultsIn(arena []byte) ([]*ir.Tensor, error) {
	var out []*ir.Tensor
	for _, r := range j.Module.Funcs[0].Results {
		at := r.Value.Offset
		if r.Updates != nil {
			at = r.Updates.Offset
		}
		if at < 0 || at+r.Value.Type.Bytes() > len(arena) {
			return nil, fmt.Errorf("result %q has no place in the arena", r.Name)
		}
		out = append(out, &ir.Tensor{Type: r.Value.Type, Data: arena[at : at+r.Value.Type.Bytes()]})
	}
	return out, nil
}
