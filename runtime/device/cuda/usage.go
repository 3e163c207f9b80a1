package cuda

import (
	"sync"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/dynlib"
)

// managementVariable names the file of NVIDIA's management library, NVML, where the system's search does not find it.
const managementVariable = "GTC_NVML_LIB"

// management is the little of NVML that the progress line shows; what a process cannot know from the driver alone. go-nvml has it
// all, but needs cgo.
type management struct {
	handle, rates uintptr // nvmlDeviceGetHandleByPciBusId_v2, nvmlDeviceGetUtilizationRates
}

// openManagement finds the library, once; nil where there is none.
var openManagement = sync.OnceValue(func() *management {
	lib, err := dynlib.Open(managementVariable, "libnvidia-ml.so.1")
	if err != nil {
		return nil
	}
	m := &management{handle: dynlib.Symbol(lib, "nvmlDeviceGetHandleByPciBusId_v2"), rates: dynlib.Symbol(lib, "nvmlDeviceGetUtilizationRates")}
	start := dynlib.Symbol(lib, "nvmlInit_v2")
	if start == 0 || m.handle == 0 || m.rates == 0 || dynlib.Call(start) != 0 {
		return nil
	}
	return m
})

// busy is the percentage of the last moments in which a kernel ran on the device at a place of the PCI bus; -1 when it is not told.
func (m *management) busy(bus string) int {
	if m == nil || bus == "" {
		return -1
	}
	var handle uintptr
	var rates [2]uint32 // nvmlUtilization_t: kernels, memory
	name := append([]byte(bus), 0)
	if dynlib.Call(m.handle, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&handle))) != 0 ||
		dynlib.Call(m.rates, handle, uintptr(unsafe.Pointer(&rates))) != 0 {
		return -1
	}
	return int(rates[0])
}

// Usage implements device.Device.
func (d *Device) Usage() device.Usage {
	u := device.Usage{Used: -1, Total: -1, Busy: -1}
	if free, total, err := d.drv.Memory(); err == nil {
		u.Used, u.Total = total-free, total
	}
	if !d.drv.StandIn {
		u.Busy = openManagement().busy(d.bus)
	}
	return u
}
