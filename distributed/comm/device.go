package comm

import "fmt"

// DeviceComm carries out collectives of a group on the memory of the members'
// devices, in the order of issue, on streams there. Its methods are for one
// thread at a time, to which the device is bound.
type DeviceComm interface {
	// Enqueue puts a call onto a stream and returns; what goes wrong later shows
	// on the stream, or never: the caller watches over the other ranks.
	Enqueue(c *DeviceCall) error
	// Failed is the error of a call that was given up by the library, if it
	// tells.
	Failed() error
	// Abort makes calls on streams end, whatever they wait for.
	Abort()
	Close() error
}

// DeviceCall is a call of a DeviceComm: all_reduce, all_gather, reduce_scatter,
// all_to_all, send or recv. Buffers are addresses on the device, of as many
// bytes as in the method of Communicator.
type DeviceCall struct {
	Op       Op
	DType    DType
	Reduce   ReduceOp
	Root     int // the peer of Send and Recv
	Dst, Src uintptr
	Bytes    int // of what each rank gives; of all_gather and recv, of what it gets from each
	Stream   uintptr
}

// DeviceState is what a rank has for collectives on devices.
type DeviceState struct {
	ID      [16]byte // of its device
	Version int      // of the library; 0 for none
}

// DeviceBackend makes DeviceComms.
type DeviceBackend struct {
	Name string // as in Options.Transport and GTC_COMM
	// Here is the version of the library, or says what is missing.
	Here func() (int, error)
	// Suits says whether the library serves ranks with those states, or why not.
	Suits func(ranks []DeviceState) error
	// Open joins the members of base, which stays behind it. bind binds the
	// calling thread to the device.
	Open func(base Communicator, bind func() error) (DeviceComm, error)
}

var deviceBackends []DeviceBackend

// RegisterDevice makes a backend known; packages call it from init.
func RegisterDevice(b DeviceBackend) { deviceBackends = append(deviceBackends, b) }

// OnDevices finds the backend of a name.
func OnDevices(name string) (*DeviceBackend, error) {
	for i := range deviceBackends {
		if b := &deviceBackends[i]; b.Name == name {
			return b, nil
		}
	}
	return nil, fmt.Errorf("this program was built without %s", name)
}
