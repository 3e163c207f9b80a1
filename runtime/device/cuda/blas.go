package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/dynlib"
)

// blas is NVIDIA's cuBLASLt, opened at run time. Names, numbers and the order of arguments are those of cublasLt.h; they have been
// the same since CUDA 11.
type blas struct {
	handle  uintptr
	version int // 130002: 13.0.2
	room    uintptr
	fn      [numBlasFuncs]uintptr
}

// Functions of cuBLASLt.
const (
	blasCreate = iota
	blasDestroy
	blasVersion
	blasStatus
	blasMatmul
	blasHeuristic
	blasCheck
	layoutCreate
	layoutDestroy
	layoutSet
	descCreate
	descDestroy
	descSet
	prefCreate
	prefDestroy
	prefSet
	numBlasFuncs
)

var blasNames = [numBlasFuncs]string{"cublasLtCreate", "cublasLtDestroy", "cublasLtGetVersion", "cublasLtGetStatusName", "cublasLtMatmul",
	"cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmulAlgoCheck", "cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy",
	"cublasLtMatrixLayoutSetAttribute", "cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy", "cublasLtMatmulDescSetAttribute",
	"cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceDestroy", "cublasLtMatmulPreferenceSetAttribute"}

// Attributes and values of cublasLt.h, cublas_api.h and library_types.h.
const (
	layoutBatch  = 5 // CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32
	layoutStride = 6 // CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64

	descTransA   = 3  // CUBLASLT_MATMUL_DESC_TRANSA, int32: 1 is CUBLAS_OP_T
	descTransB   = 4  // CUBLASLT_MATMUL_DESC_TRANSB
	descEpilogue = 7  // CUBLASLT_MATMUL_DESC_EPILOGUE, uint32
	descBias     = 8  // CUBLASLT_MATMUL_DESC_BIAS_POINTER
	descAux      = 11 // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER
	descAuxLD    = 12 // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, int64
	descAuxStep  = 13 // CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, int64

	prefWorkspace = 1 // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64
	prefAlignA    = 5 // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32; B, C and D follow

	compute32F  = 68 // CUBLAS_COMPUTE_32F
	computeTF32 = 77 // CUBLAS_COMPUTE_32F_FAST_TF32

	epilogueDefault = 1   // CUBLASLT_EPILOGUE_DEFAULT
	epilogueRelu    = 2   // CUBLASLT_EPILOGUE_RELU
	epilogueBias    = 4   // CUBLASLT_EPILOGUE_BIAS
	epilogueGelu    = 32  // CUBLASLT_EPILOGUE_GELU, the tanh form
	epilogueDGelu   = 192 // CUBLASLT_EPILOGUE_DGELU
	epilogueAux     = 128 // CUBLASLT_EPILOGUE_GELU_AUX less CUBLASLT_EPILOGUE_GELU
	epilogueGradA   = 256 // CUBLASLT_EPILOGUE_BGRADA
	epilogueGradB   = 512 // CUBLASLT_EPILOGUE_BGRADB
)

// cudaTypes are the numbers of cudaDataType.
var cudaTypes = map[string]int{"f32": 0, "f16": 2, "bf16": 14}

// blasRoom is the scratch memory that products of the library may use, bytes. NVIDIA advises 32 MiB for sm_90.
const blasRoom = 32 << 20

// blasVariable names a file that is opened in place of what the loader finds.
const blasVariable = "GTC_CUBLASLT"

// openBlas opens cuBLASLt: the file that GTC_CUBLASLT names, else what the loader finds, else what lies in CUDA_HOME.
func openBlas() (*blas, error) {
	names := []string{"libcublasLt.so.13", "libcublasLt.so.12"}
	for _, dir := range []string{os.Getenv("CUDA_HOME"), os.Getenv("CUDA_PATH")} {
		for _, sub := range []string{"lib64", "lib"} {
			if dir != "" {
				names = append(names, filepath.Join(dir, sub, names[0]), filepath.Join(dir, sub, names[1]))
			}
		}
	}
	lib, err := dynlib.Open(blasVariable, names...)
	if err != nil {
		return nil, fmt.Errorf("cuBLASLt cannot be loaded: %w", err)
	}
	b, err := bindBlas(lib)
	if err != nil {
		return nil, err
	}
	if err := b.call(blasCreate, uintptr(unsafe.Pointer(&b.handle))); err != nil {
		return nil, err
	}
	return b, nil
}

// bindBlas finds the library's functions.
func bindBlas(lib uintptr) (*blas, error) {
	b := &blas{}
	for i, name := range blasNames {
		if b.fn[i] = dynlib.Symbol(lib, name); b.fn[i] == 0 {
			return nil, fmt.Errorf("cuBLASLt is too old: it lacks %s", name)
		}
	}
	b.version = int(dynlib.Call(b.fn[blasVersion]))
	return b, nil
}

// call calls a function that answers with a status.
//
//go:uintptrescapes
func (b *blas) call(f int, args ...uintptr) error {
	if status := dynlib.Call(b.fn[f], args...); status != 0 {
		return fmt.Errorf("%s: %s", blasNames[f], statusName(status))
	}
	return nil
}

// statusName is cublasStatus_t in words.
func statusName(status int32) string {
	names := map[int32]string{1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH", 11: "MAPPING_ERROR",
		13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED", 16: "LICENSE_ERROR"}
	if name, ok := names[status]; ok {
		return "CUBLAS_STATUS_" + name
	}
	return fmt.Sprintf("status %d", status)
}

// set sets an attribute of a descriptor to a value of 4 or 8 bytes.
func set[T int32 | uint32 | int64 | uint64](b *blas, f int, of uintptr, attr int, value T) error {
	return b.call(f, of, uintptr(attr), uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value))
}

// blasAlgo is cublasLtMatmulAlgo_t: it may be kept in files, for the same version of the library.
type blasAlgo [8]uint64

// blasResult is cublasLtMatmulHeuristicResult_t.
type blasResult struct {
	algo  blasAlgo
	room  uintptr
	state int32
	waves float32
	_     [4]int32
}
