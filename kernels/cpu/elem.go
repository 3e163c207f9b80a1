package cpu

// Codes of element types, for templates that work on any: the compiler's own numbering of types may change, this one
// is part of the calling convention. elem.h has the same numbers.
const (
	ElemF32  = 1
	ElemF64  = 2
	ElemF16  = 3
	ElemBF16 = 4
	ElemI8   = 5
	ElemI16  = 6
	ElemI32  = 7
	ElemI64  = 8
	ElemU8   = 9
	ElemU16  = 10
	ElemU32  = 11
	ElemU64  = 12
	ElemBool = 13
)
