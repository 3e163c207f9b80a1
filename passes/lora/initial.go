package lora

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// defaultAlpha is peft's.
const defaultAlpha = 8

// adapt makes the adapter's parameters.
func (s *site) adapt(b *ir.Builder, o *pass.LoRA) error {
	d := s.p.Type.Dims
	alpha := o.Alpha
	if alpha == 0 {
		alpha = defaultAlpha
	}
	s.Weight, s.Scale = s.p.Name, alpha/float64(o.Rank)
	s.Lookup = len(s.lookups) > 0 && len(s.products) == 0 && !s.others
	s.Shared = len(s.lookups) > 0 && !s.Lookup
	out, in := d[0], d[1:]
	if s.InOut {
		out, in = d[1], d[:1]
	}
	ones := slices.Repeat([]int{1}, len(in)-1)
	aDims, bDims := append([]int{o.Rank}, in...), append([]int{out, o.Rank}, ones...)
	aName, bName := ".lora_A.weight", ".lora_B.weight"
	if s.Lookup {
		aDims, bDims = []int{o.Rank, d[0]}, []int{d[1], o.Rank}
		aName, bName = ".lora_embedding_A", ".lora_embedding_B"
	}
	base := pass.AdapterPrefix + moduleOf(s.p.Name)
	var err error
	if s.a, err = s.param(b, o, base+aName, aDims); err != nil {
		return err
	}
	if s.b, err = s.param(b, o, base+bName, bDims); err != nil {
		return err
	}
	if s.Lookup { // peft: A zeros, B normal
		s.b.Init.Data = random(s.b, o.Seed, (*rand.Rand).NormFloat64)
	} else { // kaiming_uniform_(a=sqrt(5)) of torch.nn.init
		bound := 1 / math.Sqrt(float64(ir.Product(in)))
		s.a.Init.Data = random(s.a, o.Seed, func(r *rand.Rand) float64 { return (2*r.Float64() - 1) * bound })
	}
	s.A, s.B = pass.Factor{Name: s.a.Name, Type: s.a.Type, Init: s.a.Init}, pass.Factor{Name: s.b.Name, Type: s.b.Type, Init: s.b.Init}
	return nil
}

// param makes one trained parameter of zeros.
func (s *site) param(b *ir.Builder, o *pass.LoRA, name string, dims []int) (*ir.Value, error) {
	if b.F.Param(name) != nil || slices.Contains(o.Taken, name) {
		return nil, ir.Errorf(ir.Loc{}, "--lora: the model has a tensor %q already; train that with --freeze '*' --train", name)
	}
	t := ir.T(s.p.Type.DType, dims...)
	v := b.Param(name, t, ir.Param)
	if v.Name != name {
		return nil, ir.Errorf(ir.Loc{}, "--lora: a value of the model has the name of an adapter, %q", name)
	}
	v.Init = &ir.Tensor{Type: t, Data: make([]byte, t.Bytes())}
	return v, nil
}

// random fills a tensor like v with numbers of draw, rounded to its type. They depend on its name and the seed alone.
func random(v *ir.Value, seed uint64, draw func(*rand.Rand) float64) []byte {
	h := fnv.New64a()
	h.Write([]byte(v.Name))
	r := rand.New(rand.NewPCG(h.Sum64(), seed))
	a := ir.NewArray(v.Type)
	for i := range a.F {
		a.F[i] = v.Type.DType.Round(draw(r))
	}
	return a.Tensor().Data
}
