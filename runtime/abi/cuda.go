package abi

// What calls of a program for `--target cuda` do: launches of compiled kernels, or products and convolutions that a
// library may do instead. Plain data; generated programs hold it, runtime/device/cuda carries it out.

// Special pointer arguments of a Launch; all others are offsets in the arena, in bytes.
const (
	ArgNil    = -1 // a null pointer
	ArgStatus = -2 // an int64 of its own for each call, MaxInt64 before it runs: kernels take the minimum with a refused row
	ArgTable  = -3 // the launch's Table, on the device
	ArgBase   = -4 // the arena's start, to which offsets in the table are relative
)

// Launch is one launch of a kernel. Its parameters are pointers, in the order of Args, and nothing else: sizes are constants
// of the kernel's text.
type Launch struct {
	Kernel      int      `print:"always"` // in Program.Device.Kernels
	Grid, Block [3]int   `print:"always"` // blocks, and threads of each
	Shared      int      // dynamic shared memory of a block, bytes
	Args        []int    `print:"always"` // offsets in the arena, or ArgNil, ...
	Table       []uint64 // of a kernel that works on many tensors at once: offsets and sizes as the kernel reads them
	Refs        []int    // which entries of Table are offsets; a program with a stash moves those
}

// Product is a matrix product C = end(Alpha A·B) for each of a batch, row-major: A is M x K (K x M stored when TransA), B is
// K x N (N x K stored when TransB), C is M x N. Epilogue says what end does, in words joined by _ that are carried out in this
// order:
//
//	bias                             the vector Bias, of N elements of TypeBias, is added to every row
//	add                              the matrix Add, stored like C, is added
//	aux                              the value so far is stored in Aux, stored like C
//	relu, gelutanh, geluerf          the activation; its result is C
//	drelu, dgelutanh, dgeluerf       or its derivative at Aux, which is read, times the value so far
//	gradn, gradm                     besides, Bias becomes the sums of B over K, N elements; or those of A, M elements
//
// Own, launches of gtc's own kernels, does the same and is what runs where there is no cuBLASLt or where it is faster. Its last
// OwnSums launches are not part of that: they make only what gradn or gradm ask for, after a library's product without it.
type Product struct {
	M, N, K, Batch            int
	TransA, TransB            bool
	LDA, LDB, LDC             int    // elements between rows as stored
	StrideA, StrideB, StrideC int    // elements between matrices of the batch
	TypeA, TypeB, TypeC       string // abi names: f32, bf16, f16; Add and Aux are of TypeC
	TypeBias                  string
	Compute                   string  // f32, or tf32; sums are f32
	Alpha                     float64 // 0 stands for 1
	Accumulate                bool    // C is added to: as add does, with C
	Epilogue                  string
	A, B, C, Bias, Add, Aux   int // offsets in the arena, or ArgNil
	Workspace, WorkBytes      int
	OwnSums                   int
	Own                       []Launch `print:"always"`
}

// Convolution is a 2-D convolution (Kind fwd), its gradient by the input (dgrad: A is dy, B the weight, C dx) or by the weight
// (wgrad: A is x, B is dy, C dw), NCHW and OIHW. Own is the same in gtc's own kernels.
type Convolution struct {
	Kind                 string
	Ints                 [16]int `print:"always"` // n, c, h, w, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups
	Type                 string  // of all operands
	Compute              string  // f32, or tf32
	A, B, C, Bias        int     // offsets in the arena, or ArgNil
	Workspace, WorkBytes int
	Own                  []Launch `print:"always"`
}
