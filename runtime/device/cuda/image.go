package cuda

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/abi"
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
	units := []abi.Unit{{Kernels: make([]int, len(code.Kernels)), Data: image.Data}}
	for i := range code.Kernels {
		units[0].Kernels[i] = i
	}
	var err error
	switch image.Arch {
	case host:
	case source:
		if units[0].Data, err = compile(image.Data, d.info.Arch, log); err != nil {
			return fmt.Errorf("%w\n  %s", d.unsuited(code), err)
		}
	default:
		if units, err = abi.UnpackUnits(image.Data); err != nil {
			return fmt.Errorf("BUG: the kernels for %s: %w", image.Arch, err)
		}
	}
	d.names, d.kernels = code.Kernels, make([]uintptr, len(code.Kernels))
	for _, u := range units {
		if err := d.loadUnit(&u, image.Arch); err != nil {
			return err
		}
	}
	for i, k := range d.kernels {
		if k == 0 {
			return fmt.Errorf("BUG: the kernels for %s have no %s", image.Arch, d.names[i])
		}
	}
	return nil
}

// loadUnit loads some of the kernels.
func (d *Device) loadUnit(u *abi.Unit, arch string) error {
	data := u.Data
	if len(data) == 0 {
		return fmt.Errorf("BUG: the kernels for %s are empty", arch)
	}
	if !bytes.HasPrefix(data, []byte("\x7fELF")) { // PTX is a C string
		data = append(data[:len(data):len(data)], 0)
	}
	module, err := d.drv.Load(data)
	if err != nil {
		return d.during("loading the kernels for "+arch, err)
	}
	d.modules = append(d.modules, module)
	for _, k := range u.Kernels {
		if k < 0 || k >= len(d.names) {
			return fmt.Errorf("BUG: there is no kernel %d of %d", k, len(d.names))
		}
		if d.kernels[k], err = d.drv.Function(module, d.names[k]); err != nil {
			return d.during("finding kernel "+d.names[k], err)
		}
	}
	return nil
}

// unsuited says that the program has nothing for this device.
func (d *Device) unsuited(code *device.Code) error {
	var have []string
	for _, i := range code.Images {
		have = append(have, i.Arch)
	}
	return fmt.Errorf("the program has kernels for %s only, but device %d (%s) is %s: compile with --arch %s",
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
