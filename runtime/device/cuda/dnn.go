package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/dynlib"
)

// dnn is NVIDIA's cuDNN, opened at run time. Names, numbers and the order of arguments are those of cudnn_ops.h and cudnn_cnn.h of
// version 9; they have been the same since version 8.
type dnn struct {
	handle  uintptr
	version int // 91300: 9.13
	fn      [numDnnFuncs]uintptr
}

// Functions of cuDNN. Those of the three kinds of convolution follow one another in the order of convKinds.
const (
	dnnCreate = iota
	dnnDestroy
	dnnVersion
	dnnSetStream
	tensorCreate
	tensorDestroy
	tensorSet
	filterCreate
	filterDestroy
	filterSet
	convCreate
	convDestroy
	convSet
	convGroups
	convMath
	dnnAddTensor
	convHeuristic                     // and two more
	convRun       = convHeuristic + 3 // and two more
	numDnnFuncs   = convRun + 3
)

var dnnNames = [numDnnFuncs]string{"cudnnCreate", "cudnnDestroy", "cudnnGetVersion", "cudnnSetStream", "cudnnCreateTensorDescriptor",
	"cudnnDestroyTensorDescriptor", "cudnnSetTensor4dDescriptor", "cudnnCreateFilterDescriptor", "cudnnDestroyFilterDescriptor",
	"cudnnSetFilter4dDescriptor", "cudnnCreateConvolutionDescriptor", "cudnnDestroyConvolutionDescriptor", "cudnnSetConvolution2dDescriptor",
	"cudnnSetConvolutionGroupCount", "cudnnSetConvolutionMathType", "cudnnAddTensor", "cudnnGetConvolutionForwardAlgorithm_v7",
	"cudnnGetConvolutionBackwardDataAlgorithm_v7", "cudnnGetConvolutionBackwardFilterAlgorithm_v7", "cudnnConvolutionForward",
	"cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter"}

// convKinds are the kinds of abi.Convolution, in the order of their functions.
var convKinds = map[string]int{"fwd": 0, "dgrad": 1, "wgrad": 2}

// Values of the headers' enumerations.
const (
	formatNCHW       = 0 // CUDNN_TENSOR_NCHW, for filters OIHW
	crossCorrelation = 1 // CUDNN_CROSS_CORRELATION
	mathDefault      = 0 // CUDNN_DEFAULT_MATH: f32 may be rounded to tf32
	mathTensor       = 1 // CUDNN_TENSOR_OP_MATH
	mathFMA          = 3 // CUDNN_FMA_MATH: f32 is not rounded
	deterministic    = 1 // CUDNN_DETERMINISTIC
)

// dnnTypes are the numbers of cudnnDataType_t.
var dnnTypes = map[string]int{"f32": 0, "f16": 2, "bf16": 9}

// dnnVariable names a file that is opened in place of what the loader finds.
const dnnVariable = "GTC_CUDNN"

// openDnn opens cuDNN: the file that GTC_CUDNN names, else what the loader finds, else what lies in CUDA_HOME.
func openDnn() (*dnn, error) {
	names := []string{"libcudnn.so.9", "libcudnn.so.8"}
	if runtime.GOOS == "windows" {
		names = []string{"cudnn64_9.dll", "cudnn64_8.dll"}
	}
	for _, dir := range []string{os.Getenv("CUDA_HOME"), os.Getenv("CUDA_PATH")} {
		for _, sub := range []string{"lib64", "lib"} {
			if dir != "" {
				names = append(names, filepath.Join(dir, sub, names[0]), filepath.Join(dir, sub, names[1]))
			}
		}
	}
	lib, err := dynlib.Open(dnnVariable, names...)
	if err != nil {
		return nil, fmt.Errorf("cuDNN cannot be loaded: %w", err)
	}
	n := &dnn{}
	for i, name := range dnnNames {
		if n.fn[i] = dynlib.Symbol(lib, name); n.fn[i] == 0 {
			return nil, fmt.Errorf("cuDNN lacks %s", name)
		}
	}
	n.version = int(dynlib.Call(n.fn[dnnVersion]))
	if err := n.call(dnnCreate, uintptr(unsafe.Pointer(&n.handle))); err != nil {
		return nil, err
	}
	return n, nil
}

// dnnError is a status of cuDNN other than success.
type dnnError struct {
	name   string
	status int32
}

func (e *dnnError) Error() string {
	// The hundreds tell kinds of failures apart since version 9.
	kinds := map[int32]string{1: "NOT_INITIALIZED", 2: "BAD_PARAM", 3: "NOT_SUPPORTED", 4: "INTERNAL_ERROR", 5: "EXECUTION_FAILED"}
	if kind, ok := kinds[e.status/1000]; ok {
		return fmt.Sprintf("%s: CUDNN_STATUS_%s (%d)", e.name, kind, e.status)
	}
	return fmt.Sprintf("%s: status %d", e.name, e.status)
}

// call calls a function that answers with a status.
//
//go:uintptrescapes
func (n *dnn) call(f int, args ...uintptr) error {
	if status := dynlib.Call(n.fn[f], args...); status != 0 {
		return &dnnError{dnnNames[f], status}
	}
	return nil
}

// dnnPerf is cudnnConvolutionFwdAlgoPerf_t, and those of the other kinds.
type dnnPerf struct {
	algo, status  int32
	time          float32
	memory        uintptr // bytes of workspace
	deterministic int32
	math          int32
	_             [3]int32
}
