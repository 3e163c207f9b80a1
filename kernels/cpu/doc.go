// Package cpu holds the hand-made kernel templates of the CPU target: matrix product, attention, cross entropy,
// convolution, pooling, row gather and scatter, and permutation.
//
// # Calling convention
//
// Generated rank programs print calls to these functions without knowing what they compute, so all share one form:
//
//	func Name(in..., out..., ws unsafe.Pointer, ints... int [, floats... float32])
//	func NameWorkspace(ints... int) int
//
// Pointers come first (inputs, outputs, then the workspace), then integer attributes, then float attributes. Every
// parameter is positional, which is why these functions are exempt from the project's limit of six parameters.
// NameWorkspace gives the bytes that ws must hold: a multiple of 64, a function of the shape alone (not of the thread
// count, so that a compiler may plan it ahead), possibly 0, in which case ws may be nil.
//
// Templates that work on any element type take its code (ElemF32, …) as an integer: one C body, instantiated by macro. They
// are the ones that the compiler falls back on; float32 has faster ones where that matters. Types of 16 bits and fewer are
// computed in float32, by casts around the call.
//
// Buffers are dense and row-major unless strides are given, hold float32 unless said otherwise, and should be 64-byte
// aligned (no kernel needs it; speed does). Inputs and outputs must not overlap unless said otherwise. Pointers may be
// nil only where the text says so.
//
// # Threads
//
// Kernels run on the number of threads given to SetThreads, through OpenMP with static schedules. Results do not depend
// on timing, nor on the number of threads. With GCC on Linux this package brings its own thread team (team.c), which
// serves every OpenMP region of the program, generated kernels included; idle threads sleep after 0.1 ms. Kernels may be
// called from any goroutine; a call made while another one has the team runs on its own thread alone.
//
// # Machines
//
// The C text uses GCC/Clang vector extensions and is compiled for the machine at hand (-march=native): AVX-512, AVX2,
// SSE and NEON widths are chosen by macro.
package cpu
