package rank

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"
)

// launchers are the Go functions through which calls reach kernels: one for each kernel, and for each way in which a
// template is called (which of its operands are there, and its floats). What differs between calls is in their At.
type launchers struct {
	names map[string]string // what a launcher does -> its name
	count map[string]int    // of a template
	code  []jen.Code
}

// launcher gives the name of the launcher for c, and c's At, of which ptrs are offsets.
func (h *host) launcher(c call) (name string, at []int, ptrs int) {
	var key strings.Builder
	fmt.Fprint(&key, c.fn, c.status, len(c.ints), c.floats)
	for _, a := range c.args {
		fmt.Fprint(&key, a.null)
		if !a.null {
			at = append(at, a.offset)
		}
	}
	ptrs = len(at)
	at = append(at, c.ints...)
	name, ok := h.launch.names[key.String()]
	if !ok {
		name = h.launch.name(c)
		h.launch.names[key.String()] = name
		h.launch.code = append(h.launch.code, launcherCode(name, c))
	}
	return name, at, ptrs
}

// name is k7 for the kernel k7_recip, gemm1, gemm2, ... for the template Gemm.
func (l *launchers) name(c call) string {
	if c.pkg == "" {
		name, _, _ := strings.Cut(c.fn, "_")
		return name
	}
	l.count[c.fn]++
	return fmt.Sprintf("%s%s%d", strings.ToLower(c.fn[:1]), c.fn[1:], l.count[c.fn])
}

// launcherCode is a launcher: it calls c's kernel on the arena at b, with the offsets and integers in at.
func launcherCode(name string, c call) jen.Code {
	var args []jen.Code
	n := 0
	next := func() jen.Code {
		n++
		return jen.Id("at").Index(jen.Lit(n - 1))
	}
	for _, a := range c.args {
		if a.null {
			args = append(args, jen.Nil())
		} else {
			args = append(args, jen.Qual("unsafe", "Add").Call(jen.Id("b"), next()))
		}
	}
	for range c.ints {
		args = append(args, next())
	}
	for _, x := range c.floats {
		args = append(args, jen.Lit(x))
	}
	fn := jen.Qual("C", c.fn)
	if c.pkg != "" {
		fn = jen.Qual(c.pkg, c.fn)
	}
	f := jen.Func().Id(name).Params(jen.Id("b").Qual("unsafe", "Pointer"), jen.Id("at").Index().Int()).Int64()
	switch {
	case c.status && c.pkg == "":
		return f.Block(jen.Return(jen.Int64().Call(fn.Call(args...))))
	case c.status:
		return f.Block(jen.Return(fn.Call(args...)))
	}
	return f.Block(fn.Call(args...), jen.Return(jen.Lit(-1)))
}

// printLaunchers prints all launchers, the only code of the package.
func (h *host) printLaunchers(pkg string) ([]byte, error) {
	f := jen.NewFile(pkg)
	f.HeaderComment(header)
	if len(h.names) > 0 {
		f.CgoPreamble(h.preamble())
	}
	f.Comment("Launchers: b is the arena, at the offsets of operands in it, then sizes. They return -1, or the first row that was refused.")
	for _, code := range h.launch.code {
		f.Line()
		f.Add(code)
	}
	var b bytes.Buffer
	err := f.Render(&b)
	return b.Bytes(), err
}

// preamble declares the kernels to cgo and tells it that they keep no pointers and call no Go.
func (h *host) preamble() string {
	var b strings.Builder
	for _, n := range h.names {
		fmt.Fprintf(&b, "#cgo noescape %s\n#cgo nocallback %s\n", n, n)
	}
	return b.String() + `#include "kernels.h"`
}
