package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/device"
)

// Kinds of images that are not for one architecture.
const (
	source = "source"
	host   = "host"
)

// load loads the image that suits the device best, and finds the kernels in it.
func (d *Device) load(code *device.Code, log func(string, ...any)) error {
	image := best(code.Images, d.info.Arch, d.drv.StandIn)
	if image == nil {
		return d.unsuited(code)
	}
	d.info.Image = image.Arch
	data := image.Data
	if image.Arch == source {
		var err error
		if data, err = compile(image.Data, d.info.Arch, log); err != nil {
			return fmt.Errorf("%w\n  %s", d.unsuited(code), err)
		}
	}
	if !strings.HasPrefix(string(data), "\x7fELF") { // PTX is a C string
		data = append(data[:len(data):len(data)], 0)
	}
	module, err := d.drv.Load(data)
	if err != nil {
		return d.during("loading the kernels for "+image.Arch, err)
	}
	d.module, d.names = module, code.Kernels
	for _, name := range code.Kernels {
		f, err := d.drv.Function(module, name)
		if err != nil {
			return d.during("finding kernel "+name, err)
		}
		d.kernels = append(d.kernels, f)
	}
	return nil
}

// unsuited says that the program has nothing for this device.
func (d *Device) unsuited(code *device.Code) error {
	var have []string
	for _, i := range code.Images {
		have = append(have, i.Arch)
	}
	return fmt.Errorf("no such arch: the program has kernels for %s, device %d (%s) is %s: compile with --arch %s",
		strings.Join(have, ", "), d.info.Number, d.info.Name, d.info.Arch, d.info.Arch)
}

// best chooses among images for a device of arch: its own cubin, else that of the closest older chip of its family, else the
// newest PTX that it understands, else source; on the stand-in for tests, a library for this processor alone. nil for none.
func best(images []device.Image, arch string, standIn bool) *device.Image {
	var found *device.Image
	most := 0
	for i := range images {
		if rank := suits(images[i].Arch, arch, standIn); rank > most {
			found, most = &images[i], rank
		}
	}
	return found
}

// suits ranks an image for a device of arch; 0 when it does not run there.
func suits(image, arch string, standIn bool) int {
	const (
		fromSource = 1
		fromPTX    = 1000
		older      = 2000
		exact      = 3000
	)
	if standIn || image == host {
		if standIn && image == host {
			return exact
		}
		return 0
	}
	if image == source {
		return fromSource
	}
	kind, number, _ := strings.Cut(image, "_")
	_, own, _ := strings.Cut(arch, "_")
	if kind == "sm" && (number == own || number == own+"a") { // sm_90a has what is on that chip alone
		return exact + len(number)
	}
	is, err1 := strconv.Atoi(number)
	have, err2 := strconv.Atoi(own)
	switch {
	case err1 != nil || err2 != nil || is > have:
		return 0
	case kind == "sm" && is/10 == have/10:
		return older + is
	case kind == "compute":
		return fromPTX + is
	}
	return 0
}
