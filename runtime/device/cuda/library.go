package cuda

import "github.com/gtc-compiler/gtc/runtime/abi"

// libraries are those of NVIDIA's that a device uses beside the driver.
type libraries struct{}

func (l *libraries) close() {}

// product prepares a matrix product for a library; nil where gtc's own kernels do it.
func (d *Device) product(*abi.Product) (func(s *stream) error, error) { return nil, nil }

// convolution prepares a convolution for a library; nil where gtc's own kernels do it.
func (d *Device) convolution(*abi.Convolution) (func(s *stream) error, error) { return nil, nil }
