package elem

// What the tests, which are outside the package because commtest imports it, see of its inside.
var (
	Widen     = widen
	Narrow    = narrow
	F16ToF32  = f16ToF32
	F32ToF16  = f32ToF16
	F32ToBF16 = f32ToBF16
)
