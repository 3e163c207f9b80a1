// Package image compiles the kernels of a program for GPUs: to cubins and PTX by NVRTC, or by nvcc where that is not there.
// Neither needs a GPU. Without both, the program carries the kernels' source and compiles it when it first starts.
//
// Each kernel is compiled by itself and its result kept in a cache, under a hash of all that it depends on: programs have
// few kernels that another has not, and a deeper model has no more of them.
package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
	"github.com/gtc-compiler/gtc/target/cuda/internal/chip"
	"github.com/gtc-compiler/gtc/target/launch"
)

// What images are made for besides chips (sm_90).
const (
	Host   = chip.Host // this processor, through the stand-in of a GPU
	Source = "source"  // whatever compiles the text at the first start
)

// Builder makes the images of programs.
type Builder struct {
	o        launch.Options
	compiler compiler // nil: the source is taken along
	warning  string   // why there is no compiler
}

// compiler turns one kernel into a cubin (arch sm_NN) or PTX (compute_NN).
type compiler interface {
	name() string // with its version: results depend on it
	driver() int  // the CUDA that a driver must support to load what it makes
	compile(ctx context.Context, u unit, arch string) (image []byte, log string, err error)
}

// unit is one kernel with its headers.
type unit struct {
	name, text string
	headers    []nvrtc.Header
	options    []string
}

// New finds a compiler. The error says what is wrong with the options.
func New(o launch.Options) (*Builder, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if len(o.Chips) == 0 {
		o.Chips = chip.Defaults()
	}
	if err := chip.Check(o.Chips); err != nil {
		return nil, err
	}
	b := &Builder{o: o}
	if slices.Contains(o.Chips, Host) {
		return b, nil
	}
	l, err := nvrtc.Open(nvrtc.Candidates(o.Toolkit, o.Getenv))
	if err == nil {
		b.compiler = byNVRTC{l}
		return b, b.known(l)
	}
	if c := findNVCC(o.Toolkit, o.Getenv); c != nil {
		b.compiler = c
		return b, nil
	}
	if o.Toolkit != "" {
		return nil, fmt.Errorf("--cuda-path %s: neither NVRTC (libnvrtc.so) nor nvcc is in it", o.Toolkit)
	}
	b.warning = "there is no NVRTC here and no nvcc, so the program carries its kernels as source and compiles them when it first " +
		"starts; that needs NVRTC there (pip install nvidia-cuda-nvrtc, a CUDA toolkit; --cuda-path says where)"
	return b, nil
}

// known refuses chips that the library does not compile for.
func (b *Builder) known(l *nvrtc.Library) error {
	have, err := l.Archs()
	if err != nil {
		return nil // an odd library: compiling tells
	}
	for _, a := range b.o.Chips {
		if n := chip.Capability(a); !slices.Contains(have, n) {
			return fmt.Errorf("--arch %s: %s (CUDA %d.%d) compiles only for %s", a, filepath.Base(l.Path), l.Major, l.Minor, smList(have))
		}
	}
	return nil
}

func smList(list []int) string {
	var parts []string
	for _, n := range list {
		parts = append(parts, "sm_"+strconv.Itoa(n))
	}
	return strings.Join(parts, ", ")
}

// Chips are those that were asked for.
func (b *Builder) Chips() []string { return b.o.Chips }

// Warning says why there is no compiler, "" when there is one.
func (b *Builder) Warning() string { return b.warning }

// Name is what compiles, "" when it is left to the first start.
func (b *Builder) Name() string {
	if b.compiler == nil {
		return ""
	}
	return b.compiler.name()
}

// Driver is the CUDA that a driver must support to load the images, such as 13000; 0 where that is not known before the start.
func (b *Builder) Driver() int {
	if b.compiler == nil {
		return 0
	}
	return b.compiler.driver()
}

// Images are the files that Build makes: one for each chip, and PTX of the latest for those to come.
func (b *Builder) Images() []launch.Image {
	switch {
	case b.o.Chips[0] == Host:
		return []launch.Image{{Arch: Host, File: "kernels.host.so"}}
	case b.compiler == nil:
		return []launch.Image{{Arch: Source, File: "kernels.source.cu"}}
	}
	var list []launch.Image
	latest := 0
	for _, a := range b.o.Chips {
		list = append(list, launch.Image{Arch: a, File: "kernels." + a + ".bin"})
		latest = max(latest, chip.Capability(a))
	}
	ptx := fmt.Sprintf("compute_%d", latest)
	return append(list, launch.Image{Arch: ptx, File: "kernels." + ptx + ".bin"})
}

// StandIn is the file with the driver's stand-in, "" where programs use a GPU's driver.
func (b *Builder) StandIn() string {
	if b.o.Chips[0] == Host {
		return "driver.host.so"
	}
	return ""
}

// Build compiles kernels; strict: no multiplication is contracted with the addition that follows. An error names the kernels
// that do not compile and shows the compiler's messages.
func (b *Builder) Build(ctx context.Context, kernels []launch.Function, strict bool) (*launch.Built, error) {
	r := &launch.Built{Files: map[string][]byte{}}
	for _, name := range closure(includes(kernels)) {
		text, err := fs.ReadFile(cuda.Headers, name)
		if err != nil {
			return nil, fmt.Errorf("BUG: kernels/cuda has no header %s: %w", name, err)
		}
		r.Files[name] = text
	}
	for _, im := range b.Images() {
		var data []byte
		var err error
		switch im.Arch {
		case Host:
			if data, err = b.hostImage(ctx, kernels, strict); err == nil {
				r.Files[b.StandIn()], err = standInDriver(ctx)
			}
		case Source:
			data = []byte(flat(kernels))
		default:
			data, err = b.units(ctx, kernels, im.Arch, strict, r)
		}
		if err != nil {
			return nil, err
		}
		r.Files[im.File] = data
	}
	return r, nil
}

// units compiles each kernel for arch, as many at once as there are processors.
func (b *Builder) units(ctx context.Context, kernels []launch.Function, arch string, strict bool, r *launch.Built) ([]byte, error) {
	units, errs := make([]abi.Unit, len(kernels)), make([]error, len(kernels))
	figures := make([]abi.KernelFigures, len(kernels))
	cached := make([]bool, len(kernels))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(kernels)) {
		wg.Go(func() {
			for i := range next {
				var log string
				units[i].Kernels = []int{i}
				units[i].Data, log, cached[i], errs[i] = b.one(ctx, newUnit(kernels[i], strict), arch)
				figures[i] = parse(log)
				figures[i].Name, figures[i].Family, figures[i].Arch = kernels[i].Name, kernels[i].Family, arch
			}
		})
	}
	for i := range kernels {
		next <- i
	}
	close(next)
	wg.Wait()
	for i := range kernels {
		if cached[i] {
			r.Cached++
		}
	}
	if !strings.HasPrefix(arch, "compute_") {
		r.Figures = append(r.Figures, figures...)
	}
	return abi.PackUnits(units), b.faults(kernels, errs, arch)
}

// faults names the kernels that do not compile. When none does, and all for one reason, it is the compiler that is at fault.
func (b *Builder) faults(kernels []launch.Function, errs []error, arch string) error {
	same := len(errs) > 1 && errs[0] != nil
	for _, err := range errs {
		same = same && err != nil && err.Error() == errs[0].Error()
	}
	if same {
		return fmt.Errorf("%s compiles no kernel for %s: %w", b.Name(), arch, errs[0])
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("BUG: kernel %s of %s does not compile for %s: %w", kernels[i].Name, kernels[i].Loc, arch, err)
		}
	}
	return errors.Join(errs...)
}

// newUnit is the translation unit of a kernel.
func newUnit(k launch.Function, strict bool) unit {
	headers := includes([]launch.Function{k})
	u := unit{name: k.Name + ".cu", options: []string{"--std=c++17"}}
	for _, name := range headers {
		u.text += fmt.Sprintf("#include %q\n", name)
	}
	u.text += k.Text
	for _, name := range closure(headers) {
		text, _ := fs.ReadFile(cuda.Headers, name)
		u.headers = append(u.headers, nvrtc.Header{Name: name, Text: string(text)})
	}
	if strict && (k.Family == "pointwise" || k.Family == "reduction") {
		u.options = append(u.options, "--fmad=false")
	}
	return u
}
