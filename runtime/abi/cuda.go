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
	Kernel      int      `print:"always"` // its index in the program's list of kernels
	Grid, Block [3]int   `print:"always"` // number of blocks, and of threads in each, along x, y and z
	Shared      int      // dynamic shared memory of a block, bytes
	Args        []int    `print:"always"` // a pointer each: bytes from the start of the arena, or ArgNil, ArgStatus, ArgTable, ArgBase
	Table       []uint64 // what ArgTable points to, for a kernel that works on many tensors at once: their offsets in the arena and their sizes; nil for none
	Refs        []int    // indices of the entries of Table that are offsets in the arena: those within slot 0 of the stash move to the slot at work
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
	M, N, K, Batch            int      // Batch is the number of products, at least 1
	TransA, TransB            bool     // the operand is stored transposed
	LDA, LDB, LDC             int      // elements between rows as stored
	StrideA, StrideB, StrideC int      // elements between matrices of the batch
	TypeA, TypeB, TypeC       string   // abi names: f32, bf16, f16; Add and Aux are of TypeC
	TypeBias                  string   // of Bias, whether it is read or written; "" where there is none
	Compute                   string   // f32, or tf32; sums are f32
	Alpha                     float64  // 0 stands for 1
	Accumulate                bool     // the result is added to what C holds
	Epilogue                  string   // what end does, in the words above; "" for nothing
	A, B, C, Bias, Add, Aux   int      // bytes from the start of the arena, or ArgNil
	Workspace, WorkBytes      int      // scratch memory: its offset in the arena and its size, bytes
	OwnSums                   int      // how many of the last launches of Own only make sums
	Own                       []Launch `print:"always"`
}

// Convolution is a 2-D convolution (Kind fwd), its gradient by the input (dgrad: A is dy, B the weight, C dx) or by the weight
// (wgrad: A is x, B is dy, C dw), NCHW and OIHW. Own is the same in gtc's own kernels.
type Convolution struct {
	Kind                 string   // fwd, dgrad or wgrad
	Ints                 [16]int  `print:"always"` // n, c, h, w, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups
	Type                 string   // element type of all operands: f32, bf16 or f16
	Compute              string   // f32, or tf32; sums are f32
	A, B, C, Bias        int      // bytes from the start of the arena, or ArgNil
	Workspace, WorkBytes int      // scratch memory: its offset in the arena and its size, bytes
	Own                  []Launch `print:"always"`
}
