package driver

import (
	"bytes"
	"unsafe"
)

// Attributes of CUdevice_attribute.
const (
	AttrMultiprocessors = 16
	AttrMajor           = 75
	AttrMinor           = 76
	AttrSharedOptin     = 97
)

// Device is the device of a number, among those that CUDA_VISIBLE_DEVICES leaves.
func (d *Driver) Device(number int) (dev int32, err error) {
	err = d.Call(DeviceGet, uintptr(unsafe.Pointer(&dev)), uintptr(number))
	return dev, err
}

// Name is a device's name, such as "NVIDIA H200".
func (d *Driver) Name(dev int32) (string, error) {
	text := make([]byte, 256)
	err := d.Call(DeviceGetName, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), uintptr(dev))
	text, _, _ = bytes.Cut(text, []byte{0})
	return string(text), err
}

// BusID is a device's place on the PCI bus, such as "0000:0F:00.0".
func (d *Driver) BusID(dev int32) (string, error) {
	text := make([]byte, 64)
	err := d.Call(DeviceGetPCIBusID, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)), uintptr(dev))
	text, _, _ = bytes.Cut(text, []byte{0})
	return string(text), err
}

// UUID tells a device from every other one.
func (d *Driver) UUID(dev int32) (id [16]byte, err error) {
	err = d.Call(DeviceGetUUID, uintptr(unsafe.Pointer(&id)), uintptr(dev))
	return id, err
}

// Attribute is a number of Attr… of a device.
func (d *Driver) Attribute(attr int, dev int32) (int, error) {
	var n int32
	err := d.Call(DeviceGetAttribute, uintptr(unsafe.Pointer(&n)), uintptr(attr), uintptr(dev))
	return int(n), err
}

// Retain gives the primary context of a device, which every user in the process shares.
func (d *Driver) Retain(dev int32) (context uintptr, err error) {
	err = d.Call(DevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&context)), uintptr(dev))
	return context, err
}

// SetContext makes a context that of the calling thread, on which the other calls work.
func (d *Driver) SetContext(context uintptr) error { return d.Call(CtxSetCurrent, context) }

// Memory is the free and the whole memory of the thread's device, in bytes.
func (d *Driver) Memory() (free, total int, err error) {
	var f, t uintptr
	err = d.Call(MemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int(f), int(t), err
}

// Alloc gives n bytes of the device's memory; Free takes them back.
func (d *Driver) Alloc(n int) (at uintptr, err error) {
	err = d.Call(MemAlloc, uintptr(unsafe.Pointer(&at)), uintptr(n))
	return at, err
}

// Free gives memory back that came from Alloc.
func (d *Driver) Free(at uintptr) error { return d.Call(MemFree, at) }

// AllocHost gives n bytes of host memory that devices read and write directly, for all contexts.
func (d *Driver) AllocHost(n int) ([]byte, error) {
	const portable = 1 // CU_MEMHOSTALLOC_PORTABLE
	var p unsafe.Pointer
	if err := d.Call(MemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(max(n, 1)), portable); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// FreeHost gives memory back that came from AllocHost.
func (d *Driver) FreeHost(b []byte) error {
	return d.Call(MemFreeHost, uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

// NewStream makes a stream that does not wait for the default one. Those of lesser priority number go first; 0 is the usual.
func (d *Driver) NewStream(priority int) (stream uintptr, err error) {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING
	if priority == 0 {
		err = d.Call(StreamCreate, uintptr(unsafe.Pointer(&stream)), nonBlocking)
	} else {
		err = d.Call(StreamCreateWithPriority, uintptr(unsafe.Pointer(&stream)), nonBlocking, uintptr(priority))
	}
	return stream, err
}

// DestroyStream ends a stream once what is on it is done.
func (d *Driver) DestroyStream(stream uintptr) error { return d.Call(StreamDestroy, stream) }

// Synchronize waits for everything on a stream.
func (d *Driver) Synchronize(stream uintptr) error { return d.Call(StreamSynchronize, stream) }

// ToDevice copies b to the device; b must stay as it is until the stream is through.
func (d *Driver) ToDevice(at uintptr, b []byte, stream uintptr) error {
	if len(b) == 0 {
		return nil
	}
	return d.Call(MemcpyHtoDAsync, at, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), stream)
}

// ToHost copies from the device to b, which is there when the stream is through.
func (d *Driver) ToHost(b []byte, at uintptr, stream uintptr) error {
	if len(b) == 0 {
		return nil
	}
	return d.Call(MemcpyDtoHAsync, uintptr(unsafe.Pointer(&b[0])), at, uintptr(len(b)), stream)
}

// Load loads a cubin, PTX that ends with a zero byte, or what else the driver takes.
func (d *Driver) Load(image []byte) (module uintptr, err error) {
	err = d.Call(ModuleLoadDataEx, uintptr(unsafe.Pointer(&module)), uintptr(unsafe.Pointer(&image[0])), 0, 0, 0)
	return module, err
}

// Function finds a kernel in a module.
func (d *Driver) Function(module uintptr, name string) (function uintptr, err error) {
	text := append([]byte(name), 0)
	err = d.Call(ModuleGetFunction, uintptr(unsafe.Pointer(&function)), module, uintptr(unsafe.Pointer(&text[0])))
	return function, err
}
