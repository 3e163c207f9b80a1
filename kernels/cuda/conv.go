package cuda

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

func init() {
	templates["ConvFwd"] = template{convTypes(2), func(c Call) (*Plan, error) { return newConv(c, "fwd").plan() }}
	templates["ConvBwdData"] = template{convTypes(-1), func(c Call) (*Plan, error) { return newConv(c, "dgrad").plan() }}
	templates["ConvBwdWeight"] = template{convTypes(-1), func(c Call) (*Plan, error) { return newConv(c, "wgrad").plan() }}
}

// convTypes takes operands of one float type, a result of that or f32, and, as pointer number bias, a bias of either or none.
func convTypes(bias int) func(types []dtype.DType) bool {
	return func(types []dtype.DType) bool {
		n := 3
		if bias >= 0 {
			n = 4
		}
		if len(types) != n || !isFloat(types[0]) || types[1] != types[0] {
			return false
		}
		if y := types[n-1]; y != types[0] && y != dtype.F32 {
			return false
		}
		return bias < 0 || types[bias] == dtype.Invalid || types[bias] == types[0] || types[bias] == dtype.F32
	}
}

// conv is a call of one of the three templates; names are those of kernels/cpu.
type conv struct {
	Call
	kind                                                                       string
	n, c, h, w, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, g int
}

func newConv(c Call, kind string) *conv {
	i := c.Ints
	return &conv{Call: c, kind: kind, n: i[0], c: i[1], h: i[2], w: i[3], o: i[4], kh: i[5], kw: i[6], oh: i[7], ow: i[8], padT: i[9], padL: i[10],
		strideH: i[11], strideW: i[12], dilH: i[13], dilW: i[14], g: i[15]}
}

// plan is the convolution for a library, and gtc's own kernels.
func (c *conv) plan() (*Plan, error) {
	p := &Plan{Convolution: c.library()}
	if g := c.product(); g != nil && c.tiled() {
		k, work, err := g.kernel()
		if err != nil {
			return nil, err
		}
		k.Family, p.Kernels, p.Workspace = "conv", []Kernel{k}, divUp(work, 64)*64
		return p, nil
	}
	if c.tiled() {
		c.tile(p)
	} else {
		c.direct(p)
	}
	return p, nil
}

// library is what cuDNN is asked for; nil where operands differ in their types.
func (c *conv) library() *abi.Convolution {
	for _, d := range c.Types {
		if d != c.Types[0] && d != dtype.Invalid {
			return nil
		}
	}
	l := &abi.Convolution{Kind: c.kind, Type: c.Types[0].String(), Compute: c.Compute, A: 0, B: 1, C: len(c.Types) - 1, Bias: Nil}
	copy(l.Ints[:], c.Ints)
	if c.kind == "fwd" && c.Types[2] != dtype.Invalid {
		l.Bias = 2
	}
	return l
}

// shape is the type name of the sizes.
func (c *conv) shape() string {
	return "gtc::conv_shape<" + strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Ints), " ", ", "), "[]") + ">"
}

// direct makes element by element.
func (c *conv) direct(p *Plan) {
	const threads = 256
	x, last := cType(c.Types, 0), cType(c.Types, len(c.Types)-1)
	var k Kernel
	blocks := 0
	switch c.kind {
	case "fwd":
		k = kernelOf("conv", "conv", "conv_forward", threads, operands(c.Types, 3, "x", "w", "bias", "y"), c.shape(), x, cType(c.Types, 2), last, threads)
		blocks = divUp(c.n*c.o*c.oh*c.ow, threads)
	case "dgrad":
		k = kernelOf("conv_data", "conv", "conv_data", threads, operands(c.Types, 2, "dy", "w", "dx"), c.shape(), x, last, threads)
		blocks = divUp(c.n*c.c*c.h*c.w, threads)
	case "wgrad":
		k = kernelOf("conv_weight", "conv", "conv_weight", threads, operands(c.Types, 2, "x", "dy", "dw"), c.shape(), x, last, threads)
		blocks = c.o * c.c / c.g * c.kh * c.kw
	}
	if blocks == 0 {
		return
	}
	k.Include, k.Grid = []string{"conv.cuh"}, [3]int{blocks, 1, 1}
	p.Kernels = append(p.Kernels, k)
}
