// Package codegentest runs generated kernels inside tests: it compiles all functions of a module into one
// program, executes each once on given contents, and returns what they computed.
package codegentest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/fuse"
	"github.com/gtc-compiler/gtc/passes/memplan"
	"github.com/gtc-compiler/gtc/passes/multitensor"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/schedule"
)

// runner is the main program: it fills the arena from stdin's file, runs each function and writes the arena after
// each to its own file.
const runner = `package main

import (
	"fmt"
	"os"
	"unsafe"

	"gtcout/prog0"
	"github.com/gtc-compiler/gtc/kernels/cpu"
)

func main() {
	image, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	buf := make([]byte, len(image)+64)
	off := int(-uintptr(unsafe.Pointer(&buf[0])) & 63)
	arena := buf[off : off+len(image)]
	prog0.Program.SetThreads(2)
	cpu.SetThreads(2)
	for _, fn := range os.Args[2:] {
		copy(arena, image)
		for _, c := range prog0.Program.Funcs[fn] {
			if bad := c.Run(unsafe.Pointer(&arena[0]), c.At); bad >= 0 {
				fmt.Fprintln(os.Stderr, c.Name, "refused row", bad)
			}
		}
		for _, c := range prog0.Program.Copies[fn] {
			copy(arena[c.To:c.To+c.Bytes], arena[c.From:c.From+c.Bytes])
		}
		if err := os.WriteFile(os.Args[1]+"."+fn, arena, 0o666); err != nil {
			panic(err)
		}
	}
}
`

// planned takes the module through the passes from fuse on, and verifies it behind each.
func planned(c *pass.Context) error {
	for _, run := range []func(*pass.Context) error{fuse.Run, schedule.Run, memplan.Run, multitensor.Run} {
		if err := run(c); err != nil {
			return err
		}
		if err := c.Module.Verify(); err != nil {
			return err
		}
	}
	return nil
}

// Run fuses, plans, prints, builds and executes every function of m; args gives the contents of parameters by
// function and name. It returns the results of each function, by position. dir is a scratch folder.
func Run(m *ir.Module, dir string, args map[string]map[string]*ir.Array) (map[string][]*ir.Array, error) {
	return RunOn(&pass.Options{}, m, dir, args)
}

// RunOn does what Run does for a target whose programs run on this processor.
func RunOn(o *pass.Options, m *ir.Module, dir string, args map[string]map[string]*ir.Array) (map[string][]*ir.Array, error) {
	c := &pass.Context{Module: m, Opt: o}
	if err := planned(c); err != nil {
		return nil, err
	}
	src, err := rank.Generate("prog0", rank.Target{Options: o}, rank.Program{Module: m, Plan: c.Plan})
	if err != nil {
		return nil, err
	}
	folder := &build.Folder{Dir: dir, Programs: []map[string][]byte{src.Files}}
	if keep := os.Getenv("GTC_KEEP"); keep != "" {
		dir = keep
		folder.Dir = keep
	}
	folder.Manifest, _ = json.Marshal(struct{}{})
	if err := build.Write(folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "cmd", "runner"), 0o777); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "cmd", "runner", "main.go"), []byte(runner), 0o666); err != nil {
		return nil, err
	}
	if err := build.Binaries(context.Background(), dir, build.How{}); err != nil {
		return nil, err
	}
	return execute(m, c.Plan.ArenaBytes, dir, args)
}

func execute(m *ir.Module, size int, dir string, args map[string]map[string]*ir.Array) (map[string][]*ir.Array, error) {
	image := make([]byte, size)
	cmd := exec.Command(filepath.Join(dir, "bin", "runner"), filepath.Join(dir, "arena"))
	for _, f := range m.Funcs {
		cmd.Args = append(cmd.Args, f.Name)
		for _, p := range f.Params {
			copy(image[p.Offset:], args[f.Name][p.Name].Tensor().Data)
		}
		for _, op := range f.Ops {
			if group.Impl(op).Kind == kir.Literal {
				copy(image[op.Out[0].Offset:], op.Attrs.(ops.ConstAttrs).Value.Data)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "arena"), image, 0o666); err != nil {
		return nil, err
	}
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		return nil, fmt.Errorf("running the kernels: %v\n%s", err, bytes.TrimSpace(out))
	}
	results := map[string][]*ir.Array{}
	for _, f := range m.Funcs {
		arena, err := os.ReadFile(filepath.Join(dir, "arena."+f.Name))
		if err != nil {
			return nil, err
		}
		for _, r := range f.Results {
			at := r.Value.Offset
			if r.Updates != nil {
				at = r.Updates.Offset
			}
			t := &ir.Tensor{Type: r.Value.Type, Data: arena[at : at+r.Value.Type.Bytes()]}
			results[f.Name] = append(results[f.Name], t.Array())
		}
	}
	return results, nil
}
