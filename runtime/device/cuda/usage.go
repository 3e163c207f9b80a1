package cuda

import "github.com/gtc-compiler/gtc/runtime/device"

// Usage implements device.Device.
func (d *Device) Usage() device.Usage {
	u := device.Usage{Used: -1, Total: -1, Busy: -1}
	if free, total, err := d.drv.Memory(); err == nil {
		u.Used, u.Total = total-free, total
	}
	return u
}
