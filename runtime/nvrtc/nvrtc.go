// Package nvrtc calls NVIDIA's run-time compiler, NVRTC: CUDA C++ in, a cubin or PTX out. The library is opened when it is
// asked for, so that programs which have this package also run where it is not; no GPU and no driver are needed.
//
// Names and numbers are those of nvrtc.h 13.0. They have been the same since 11.3.
package nvrtc

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/ebitengine/purego"
)

// Library is an opened NVRTC. Its methods may be called from several goroutines at once.
type Library struct {
	Path         string // the file
	Major, Minor int    // its version, that of the CUDA toolkit

	create     func(prog *uintptr, source, name string, headers int32, texts, names **byte) int32
	destroy    func(prog *uintptr) int32
	compile    func(prog uintptr, options int32, list **byte) int32
	errorText  func(code int32) string
	logSize    func(prog uintptr, n *uintptr) int32
	log        func(prog uintptr, to *byte) int32
	cubinSize  func(prog uintptr, n *uintptr) int32
	cubin      func(prog uintptr, to *byte) int32
	ptxSize    func(prog uintptr, n *uintptr) int32
	ptx        func(prog uintptr, to *byte) int32
	countArchs func(n *int32) int32
	archs      func(list *int32) int32
}

// Header is a file that sources include by name; it need not be on disk.
type Header struct{ Name, Text string }

// Source is a translation unit.
type Source struct {
	Name    string // in messages
	Text    string
	Headers []Header
}

// Error is a source that does not compile, or another failure of the library.
type Error struct {
	Unit string // Source.Name
	What string // NVRTC's name of the failure
	Log  string // its messages; lines refer to the source and headers by name
}

// Error gives the failure and the compiler's messages.
func (e *Error) Error() string {
	if e.Log == "" {
		return fmt.Sprintf("%s: %s", e.Unit, e.What)
	}
	return fmt.Sprintf("%s: %s\n%s", e.Unit, e.What, e.Log)
}

var opened struct {
	sync.Mutex
	library *Library
	err     error
	key     string
}

// Open opens the first of the files that is NVRTC, as Candidates lists them. The error names every one that was tried; the
// same list is opened once.
func Open(files []string) (*Library, error) {
	opened.Lock()
	defer opened.Unlock()
	key := strings.Join(files, "\n")
	if opened.key == key && (opened.library != nil || opened.err != nil) {
		return opened.library, opened.err
	}
	opened.key = key
	opened.library, opened.err = open(files)
	return opened.library, opened.err
}

func open(files []string) (*Library, error) {
	var faults []error
	for _, file := range files {
		l, err := load(file)
		if err == nil {
			return l, nil
		}
		faults = append(faults, err)
	}
	return nil, fmt.Errorf("NVRTC cannot be loaded: %w", errors.Join(faults...))
}

func load(file string) (*Library, error) {
	builtins(file)
	handle, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	l := &Library{Path: file}
	for name, fn := range map[string]any{
		"nvrtcCreateProgram": &l.create, "nvrtcDestroyProgram": &l.destroy, "nvrtcCompileProgram": &l.compile,
		"nvrtcGetErrorString": &l.errorText, "nvrtcGetProgramLogSize": &l.logSize, "nvrtcGetProgramLog": &l.log,
		"nvrtcGetCUBINSize": &l.cubinSize, "nvrtcGetCUBIN": &l.cubin, "nvrtcGetPTXSize": &l.ptxSize, "nvrtcGetPTX": &l.ptx,
		"nvrtcGetNumSupportedArchs": &l.countArchs, "nvrtcGetSupportedArchs": &l.archs,
	} {
		at, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("%s: it is older than CUDA 11.3, or not NVRTC: %w", file, err)
		}
		purego.RegisterFunc(fn, at)
	}
	at, err := purego.Dlsym(handle, "nvrtcVersion")
	if err != nil {
		return nil, err
	}
	var version func(major, minor *int32) int32
	purego.RegisterFunc(&version, at)
	var major, minor int32
	if code := version(&major, &minor); code != 0 {
		return nil, fmt.Errorf("%s: %s", file, l.errorText(code))
	}
	l.Major, l.Minor = int(major), int(minor)
	return l, nil
}

// builtins opens the library that NVRTC opens by its bare name when it compiles, where that lies beside it: the loader would
// not look there.
func builtins(file string) {
	if !filepath.IsAbs(file) {
		return
	}
	for _, f := range matches(filepath.Dir(file), "libnvrtc-builtins.so.*") {
		purego.Dlopen(f, purego.RTLD_NOW|purego.RTLD_GLOBAL) // if it cannot be, NVRTC says so
	}
}

// Archs lists the chips that the library compiles for, as compute capabilities: 80 is sm_80.
func (l *Library) Archs() ([]int, error) {
	var n int32
	if code := l.countArchs(&n); code != 0 {
		return nil, errors.New(l.errorText(code))
	}
	list := make([]int32, max(n, 1))
	if code := l.archs(&list[0]); code != 0 {
		return nil, errors.New(l.errorText(code))
	}
	var out []int
	for _, a := range list[:n] {
		out = append(out, int(a))
	}
	return out, nil
}

// Compile compiles s for arch: sm_NN gives a cubin, compute_NN gives PTX. The log has what the compiler says even when all
// is well, such as the registers of each kernel with --ptxas-options=-v among the options. A source at fault is an *Error.
func (l *Library) Compile(s Source, arch string, options ...string) (image []byte, log string, err error) {
	var p runtime.Pinner
	defer p.Unpin()
	texts, names := make([]string, len(s.Headers)), make([]string, len(s.Headers))
	for i, h := range s.Headers {
		texts[i], names[i] = h.Text, h.Name
	}
	var prog uintptr
	if code := l.create(&prog, s.Text, s.Name, int32(len(s.Headers)), list(&p, texts), list(&p, names)); code != 0 {
		return nil, "", &Error{Unit: s.Name, What: l.errorText(code)}
	}
	defer l.destroy(&prog)
	options = append([]string{"--gpu-architecture=" + arch}, options...)
	code := l.compile(prog, int32(len(options)), list(&p, options))
	text, err := l.bytes(prog, l.logSize, l.log)
	if err != nil {
		return nil, "", &Error{Unit: s.Name, What: err.Error()}
	}
	log = strings.TrimSpace(strings.TrimRight(string(text), "\x00"))
	if code != 0 {
		return nil, log, &Error{Unit: s.Name, What: l.errorText(code), Log: log}
	}
	if strings.HasPrefix(arch, "compute_") {
		image, err = l.bytes(prog, l.ptxSize, l.ptx)
	} else {
		image, err = l.bytes(prog, l.cubinSize, l.cubin)
	}
	if err == nil && len(image) == 0 {
		err = errors.New("nothing was compiled")
	}
	if err != nil {
		return nil, log, &Error{Unit: s.Name, What: err.Error(), Log: log}
	}
	return image, log, nil
}

// bytes fetches a result whose size the library tells first.
func (l *Library) bytes(prog uintptr, size func(uintptr, *uintptr) int32, get func(uintptr, *byte) int32) ([]byte, error) {
	var n uintptr
	if code := size(prog, &n); code != 0 {
		return nil, errors.New(l.errorText(code))
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]byte, n)
	if code := get(prog, &out[0]); code != 0 {
		return nil, errors.New(l.errorText(code))
	}
	return out, nil
}

// list is a C array of strings that end with a zero; nil for none.
func list(p *runtime.Pinner, texts []string) **byte {
	if len(texts) == 0 {
		return nil
	}
	out := make([]*byte, len(texts))
	for i, s := range texts {
		b := append([]byte(s), 0)
		p.Pin(&b[0])
		out[i] = &b[0]
	}
	p.Pin(&out[0])
	return &out[0]
}
