// Package gpus asks NVIDIA's management library, NVML, which GPUs a machine has, what they do and how they are connected. Rank
// programs do not use it: go-nvml is built with cgo, and they are built without.
package gpus

import (
	"errors"
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Variable names the library's file, where the system's search does not find it.
const Variable = "GTC_NVML_LIB"

// Report is what a machine has. Its JSON is public.
type Report struct {
	Driver string `json:"driver"` // version of the driver, such as 580.65.06
	CUDA   string `json:"cuda"`   // that it supports, such as 13.0
	GPUs   []GPU  `json:"gpus"`
}

// GPU is one device. A number that the driver does not tell is -1.
type GPU struct {
	Number      int    `json:"number"` // in the order of the PCI bus, which CUDA follows with CUDA_DEVICE_ORDER=PCI_BUS_ID
	Name        string `json:"name"`
	UUID        string `json:"uuid"` // which CUDA_VISIBLE_DEVICES takes too
	Bus         string `json:"bus"`
	Arch        string `json:"arch"`                // sm_90, for --arch
	Used        int64  `json:"memory_used_bytes"`   // by all processes, and the driver
	Total       int64  `json:"memory_total_bytes"`  //
	Busy        int    `json:"utilisation_percent"` // of the last moments in which a kernel ran
	Temperature int    `json:"temperature_celsius"`
	Faults      int64  `json:"uncorrected_ecc_errors"` // since the driver was loaded
	PCIe        PCIe   `json:"pcie"`
	Links       []Link `json:"nvlink,omitempty"`
}

// PCIe is the connection to the host, as it is at the moment: idle links slow down.
type PCIe struct {
	Generation int `json:"generation"`
	Width      int `json:"width"` // lanes
}

// Link is the NVLink connection to another GPU, or to a switch that leads to all.
type Link struct {
	To    int    `json:"to"` // number of the GPU; -1 for a switch, -2 for what is none
	Kind  string `json:"kind"`
	Count int    `json:"links"`
}

// Kinds of what is at the other end of a link.
const (
	linkGPU    = "gpu"
	linkSwitch = "switch"
	linkOther  = "other"
)

// ErrNone is the error of a machine without a driver or GPU.
var ErrNone = errors.New("no GPU")

// Open loads the library.
func Open() nvml.Interface {
	if path := os.Getenv(Variable); path != "" {
		return nvml.New(nvml.WithLibraryPath(path))
	}
	return nvml.New()
}

// Read asks lib about all GPUs. Errors wrap ErrNone where there is no driver or no GPU.
func Read(lib nvml.Interface) (*Report, error) {
	switch r := lib.Init(); r {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: no NVIDIA driver: libnvidia-ml.so.1 cannot be loaded (set %s to its file if it lies elsewhere)", ErrNone, Variable)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("%w: the NVIDIA driver is installed but not loaded (modprobe nvidia)", ErrNone)
	default:
		return nil, fmt.Errorf("%w: the NVIDIA driver does not start: %s", ErrNone, lib.ErrorString(r))
	}
	defer lib.Shutdown()
	n, r := lib.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("counting GPUs: %s", lib.ErrorString(r))
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: the NVIDIA driver shows none", ErrNone)
	}
	report := &Report{}
	if version, r := lib.SystemGetDriverVersion(); r == nvml.SUCCESS {
		report.Driver = version
	}
	if cuda, r := lib.SystemGetCudaDriverVersion(); r == nvml.SUCCESS {
		report.CUDA = fmt.Sprintf("%d.%d", cuda/1000, cuda%1000/10)
	}
	var devices []nvml.Device
	for i := range n {
		d, r := lib.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			return nil, fmt.Errorf("GPU %d: %s", i, lib.ErrorString(r))
		}
		devices = append(devices, d)
		report.GPUs = append(report.GPUs, describe(i, d))
	}
	for i, d := range devices {
		report.GPUs[i].Links = links(d, report.GPUs)
	}
	return report, nil
}

// describe asks a device for all but its links.
func describe(number int, d nvml.Device) GPU {
	g := GPU{Number: number, Name: "unknown", Used: -1, Total: -1, Busy: -1, Temperature: -1, Faults: -1, PCIe: PCIe{-1, -1}}
	if name, r := d.GetName(); r == nvml.SUCCESS {
		g.Name = name
	}
	if id, r := d.GetUUID(); r == nvml.SUCCESS {
		g.UUID = id
	}
	if pci, r := d.GetPciInfo(); r == nvml.SUCCESS {
		g.Bus = bus(pci)
	}
	if major, minor, r := d.GetCudaComputeCapability(); r == nvml.SUCCESS {
		g.Arch = fmt.Sprintf("sm_%d%d", major, minor)
	}
	if m, r := d.GetMemoryInfo(); r == nvml.SUCCESS {
		g.Used, g.Total = int64(m.Used), int64(m.Total)
	}
	if u, r := d.GetUtilizationRates(); r == nvml.SUCCESS {
		g.Busy = int(u.Gpu)
	}
	if t, r := d.GetTemperature(nvml.TEMPERATURE_GPU); r == nvml.SUCCESS {
		g.Temperature = int(t)
	}
	if n, r := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); r == nvml.SUCCESS {
		g.Faults = int64(n)
	}
	if n, r := d.GetCurrPcieLinkGeneration(); r == nvml.SUCCESS {
		g.PCIe.Generation = n
	}
	if n, r := d.GetCurrPcieLinkWidth(); r == nvml.SUCCESS {
		g.PCIe.Width = n
	}
	return g
}

// bus is a place on the PCI bus as text, in the form that both ends of a link have.
func bus(p nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", p.Domain, p.Bus, p.Device)
}

// links counts the NVLinks of a device by what is at their other ends.
func links(d nvml.Device, all []GPU) []Link {
	var list []Link
	for i := range int(nvml.NVLINK_MAX_LINKS) {
		if state, r := d.GetNvLinkState(i); r != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		l := Link{To: -2, Kind: linkOther, Count: 1}
		if kind, r := d.GetNvLinkRemoteDeviceType(i); r == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
			l.To, l.Kind = -1, linkSwitch
		} else if far, r := d.GetNvLinkRemotePciInfo(i); r == nvml.SUCCESS {
			for _, g := range all {
				if g.Bus == bus(far) {
					l.To, l.Kind = g.Number, linkGPU
				}
			}
		}
		if k := find(list, l); k >= 0 {
			list[k].Count++
		} else {
			list = append(list, l)
		}
	}
	return list
}

func find(list []Link, l Link) int {
	for i := range list {
		if list[i].To == l.To && list[i].Kind == l.Kind {
			return i
		}
	}
	return -1
}
