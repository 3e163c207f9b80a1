// Package standin makes this processor stand in for a GPU: it compiles the CUDA text of gtc with the system's C++ compiler
// into an image, a shared library of kernels with the engine that runs them (src), and builds a library with the functions
// of the CUDA driver that gtc uses, which loads such images. With it, tests execute all that a GPU would, kernels, streams
// and graphs, where there is none; and with checks on, it finds what a GPU only suffers from: races, addresses outside of
// memory, barriers that not all threads reach.
package standin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gtc-compiler/gtc/kernels/cuda"
)

//go:embed src
var sources embed.FS

// Options are how kernels are compiled.
type Options struct {
	Checked bool // with checks: some ten times slower, and launches fail with a report when a kernel does what it must not
	Strict  bool // no multiplication is fused with the addition that follows
}

// flags are those of everything; kernels add their own.
var flags = []string{"-std=c++17", "-march=native", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-fno-strict-aliasing", "-fno-math-errno",
	"-DGTC_HOST", "-Wno-unknown-pragmas", "-Wno-attributes"}

// kernelFlags are by whether checks are on. The compiler's own run-time library of -fsanitize=thread is not linked.
var kernelFlags = map[bool][]string{
	false: {"-O2", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics"},
	true: {"-O1", "-g1", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-DGTC_HOST_CHECK", "-fsanitize=thread",
		"--param=tsan-instrument-func-entry-exit=0"},
}

// builder holds the folder of what is built, and the sources that it is built from.
type builder struct {
	compiler string
	dir      string // of the cache, one for each version of the sources and the compiler
	headers  string // folder of headers and sources
	mu       sync.Mutex
}

// Compiler finds the C++ compiler that all is built with: what CXX names, or g++. The error says that there is none.
func Compiler() (path string, err error) {
	compiler := os.Getenv("CXX")
	if compiler == "" {
		compiler = "g++"
	}
	if path, err = exec.LookPath(compiler); err != nil {
		return "", fmt.Errorf("the stand-in for a GPU is built with a C++ compiler, and there is none (install g++, or set CXX): %w", err)
	}
	return path, nil
}

// open finds the compiler and lays out the sources, once for the process.
var open = sync.OnceValues(func() (*builder, error) {
	path, err := Compiler()
	if err != nil {
		return nil, err
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", path, err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "1\n%s\n%s\n%q\n%q\n%s\n", version, flags, kernelFlags[false], kernelFlags[true], processor())
	files := map[string][]byte{}
	for _, from := range []fs.FS{cuda.Headers, sources} {
		err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(from, name)
			files[filepath.Base(name)] = text
			fmt.Fprintf(h, "%s %d\n%s\n", name, len(text), text)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	b := &builder{compiler: path, dir: filepath.Join(cacheDir(), hex.EncodeToString(h.Sum(nil)[:12]))}
	b.headers = filepath.Join(b.dir, "src")
	if _, err := os.Stat(b.headers); err == nil {
		return b, nil
	}
	if err := os.MkdirAll(b.dir, 0o777); err != nil {
		return nil, err
	}
	prune(cacheDir())
	tmp, err := os.MkdirTemp(b.dir, "src-")
	if err != nil {
		return nil, err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), text, 0o666); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(tmp, b.headers); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, err2 := os.Stat(b.headers); err2 != nil {
			return nil, err
		}
	}
	return b, nil
})

// cacheDir is where what is built stays: GTC_CACHE, or the user's cache, or temporary files.
func cacheDir() string {
	switch dir := os.Getenv("GTC_CACHE"); dir {
	case "off":
	case "":
		if dir, err := os.UserCacheDir(); err == nil {
			return filepath.Join(dir, "gtc", "host")
		}
	default:
		return filepath.Join(dir, "host")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("gtc-host-%d", os.Getuid()))
}

// stale is how long after its last addition the folder of another version is kept.
const stale = 7 * 24 * time.Hour

// prune removes what older versions of the sources or the compiler left.
func prune(dir string) {
	versions, _ := os.ReadDir(dir)
	for _, v := range versions {
		if info, err := v.Info(); err == nil && v.IsDir() && time.Since(info.ModTime()) > stale {
			os.RemoveAll(filepath.Join(dir, v.Name()))
		}
	}
}

// processor tells processors of different instructions apart: code is compiled for this very one.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for _, line := range strings.Split(string(info), "\n") {
		if strings.HasPrefix(line, "flags") || strings.HasPrefix(line, "Features") {
			return line
		}
	}
	return runtime.GOARCH
}

// make gives the file called name in the cache, built by build into the path that it is given when it is not there.
func (b *builder) make(name string, build func(path string) error) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	path := filepath.Join(b.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	tmp, err := os.MkdirTemp(b.dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := build(filepath.Join(tmp, name)); err != nil {
		return "", err
	}
	return path, os.Rename(filepath.Join(tmp, name), path)
}

// run runs the compiler in folder dir.
func (b *builder) run(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, b.compiler, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(b.compiler), err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// object compiles a source of the engine.
func (b *builder) object(ctx context.Context, name string) (string, error) {
	return b.make(name+".o", func(path string) error {
		return b.run(ctx, b.dir, append(flags[:len(flags):len(flags)], "-O2", "-ffp-contract=fast", "-I", b.headers, "-c", filepath.Join(b.headers, name+".cc"), "-o", path)...)
	})
}

// kernel finds a __global__ function with what __launch_bounds__ says.
var kernel = regexp.MustCompile(`__global__\s+void\s+(?:__launch_bounds__\s*\(([^(),]*)[^()]*\)\s*)?(\w+)\s*\(`)

// table is the C++ text that lists the kernels of text.
func table(text string, checked bool) (string, error) {
	var b strings.Builder
	all := kernel.FindAllStringSubmatch(text, -1)
	if n := strings.Count(text, "__global__"); n != len(all) || n == 0 {
		return "", fmt.Errorf("the text has %d __global__ functions, of which %d are written as kernels of gtc are", n, len(all))
	}
	b.WriteString("\n#include \"image.h\"\ntemplate <class... A> constexpr unsigned gtc_host_parameters(void (*)(A*...)) { return sizeof...(A); }\n")
	b.WriteString("extern \"C\" {\nextern const gtc_image_kernel gtc_image_kernels[];\nconst gtc_image_kernel gtc_image_kernels[] = {\n")
	for _, m := range all {
		bound := m[1]
		if bound == "" {
			bound = "1024"
		}
		fmt.Fprintf(&b, "\t{\"%s\", (void*)%s, gtc_host_parameters(%s), %s},\n", m[2], m[2], m[2], bound)
	}
	on := 0
	if checked {
		on = 1
	}
	fmt.Fprintf(&b, "};\nextern const unsigned gtc_image_kernel_count;\nconst unsigned gtc_image_kernel_count = %d;\n", len(all))
	fmt.Fprintf(&b, "extern const int gtc_image_checked;\nconst int gtc_image_checked = %d;\n}\n", on)
	return b.String(), nil
}

// ImageFile compiles CUDA text, kernels whose parameters are all pointers, into an image and gives its path in the cache. The
// text may include the headers of kernels/cuda. Errors are the compiler's.
func ImageFile(ctx context.Context, text string, o Options) (string, error) {
	b, err := open()
	if err != nil {
		return "", err
	}
	return b.image(ctx, text, o)
}

func (b *builder) image(ctx context.Context, text string, o Options) (string, error) {
	list, err := table(text, o.Checked)
	if err != nil {
		return "", err
	}
	var objects []string
	for _, name := range []string{"engine", "fibres", "exchange", "check", "profile"} {
		o, err := b.object(ctx, name)
		if err != nil {
			return "", err
		}
		objects = append(objects, o)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v\n%s%s", o, text, list))
	return b.make("image-"+hex.EncodeToString(sum[:12])+".so", func(path string) error {
		// File names are relative: equal texts give equal images.
		const source = "kernels.cu"
		dir := filepath.Dir(path)
		if err := os.WriteFile(filepath.Join(dir, source), []byte(text+list), 0o666); err != nil {
			return err
		}
		args := append(flags[:len(flags):len(flags)], kernelFlags[o.Checked]...)
		if o.Strict {
			args = append(args, "-ffp-contract=off")
		} else {
			args = append(args, "-ffp-contract=fast") // as compilers for GPUs do
		}
		args = append(args, "-ffile-prefix-map="+b.headers+"/=", "-fdebug-prefix-map="+dir+"=.", "-I", b.headers, "-x", "c++", "-c", source, "-o", "kernels.o")
		if err := b.run(ctx, dir, args...); err != nil {
			return err
		}
		return b.run(ctx, dir, append([]string{"-shared", "kernels.o", "-o", path, "-pthread"}, objects...)...)
	})
}

// Image is ImageFile's contents.
func Image(ctx context.Context, text string, o Options) ([]byte, error) {
	path, err := ImageFile(ctx, text, o)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// Runner builds the program that runs the kernels of an image on buffers from files; see src/runner.cc. It gives its path.
func Runner(ctx context.Context) (string, error) {
	b, err := open()
	if err != nil {
		return "", err
	}
	return b.make("runner", func(path string) error {
		return b.run(ctx, b.dir, "-std=c++17", "-O1", filepath.Join(b.headers, "runner.cc"), "-o", path, "-ldl", "-pthread")
	})
}

// Driver builds the library that stands in for libcuda, and gives its path, for GTC_CUDA_LIB; src/driver.h says how it can be
// told to be small, many, or slow.
func Driver(ctx context.Context) (string, error) {
	b, err := open()
	if err != nil {
		return "", err
	}
	return b.make("libcuda-standin.so", func(path string) error {
		args := append(flags[:len(flags):len(flags)], "-O2", "-shared", "-o", path, "-pthread", "-ldl")
		for _, name := range []string{"driver", "streams", "graphs", "modules"} {
			args = append(args, filepath.Join(b.headers, name+".cc"))
		}
		return b.run(ctx, b.dir, args...)
	})
}

// place is an address within an image's file, as reports have it.
var place = regexp.MustCompile(`@0x[0-9a-f]+`)

// Lines replaces addresses in a report on the image by names and lines of its source, where the system has addr2line.
func Lines(report, image string) string {
	return place.ReplaceAllStringFunc(report, func(at string) string {
		out, err := exec.Command("addr2line", "-C", "-f", "-i", "-s", "-e", image, at[1:]).Output()
		if err != nil {
			return at
		}
		var inlined []string // innermost first; pairs of lines
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		for i := 0; i+1 < len(lines); i += 2 {
			at, _, _ := strings.Cut(lines[i+1], " ")
			inlined = append(inlined, at)
		}
		return strings.Join(inlined, " < ")
	})
}
