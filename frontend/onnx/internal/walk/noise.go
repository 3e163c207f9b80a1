package walk

import (
	"fmt"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Dropout that a file spells out as random numbers, a comparison and a product is made a dropout, so that evaluation leaves it out.
// Its scale tells it from other noise: what is kept is divided by the probability to keep it.

// maxViews is the number of steps from random numbers to a product, or of factors beside it, that are looked at.
const maxViews = 64

// settleNoise recognises dropouts in f and warns of the other sources of random numbers.
func (w *Walker) settleNoise() {
	f := w.B.F
	seeds := map[int]int{}
	for _, op := range f.Ops {
		switch a := op.Attrs.(type) {
		case ops.RandAttrs:
			seeds[a.Seed]++
		case ops.DropoutAttrs:
			seeds[a.Seed]++
		}
	}
	uses, results := f.Uses(), map[*ir.Value]bool{}
	for _, r := range f.Results {
		results[r.Value] = true
	}
	sites := map[*ir.Op]*noiseSite{}
	var found, others []string
	for _, op := range f.Ops {
		if op.Def != ops.RandDef {
			continue
		}
		s := &noiseSource{rand: op, uses: uses, results: results}
		if seeds[op.Attrs.(ops.RandAttrs).Seed] == 1 && s.follow(op.Out[0], noise{scale: 1}, nil) && s.agree() {
			for _, site := range s.sites {
				sites[site.op] = site
			}
			found = append(found, op.Loc.String())
			continue
		}
		if name := fmt.Sprintf("%s (%s)", op.Loc, op.Loc.OpType); !slices.Contains(others, name) {
			others = append(others, name)
		}
	}
	w.File.RandomNodes = slices.Concat(found, others)
	if len(found) > 0 {
		w.rewriteDropouts(sites)
		w.File.Warn("the random numbers of %s make a dropout: training draws it, evaluation leaves it out", listed(found))
	}
	if len(others) > 0 {
		w.File.Warn("results are random, in evaluation too: %s draws new numbers in every step", listed(others))
	}
}

// noise is what a value holds that is computed from a source's number u in [0,1) and constants: scale*u + shift, or, for a coin, the
// number low where u < cut and high elsewhere.
type noise struct {
	scale, shift   float64
	coin           bool
	cut, low, high float64
}

// noiseSource follows the numbers of one rand to where they are used.
type noiseSource struct {
	rand    *ir.Op
	uses    map[*ir.Value][]*ir.Op
	results map[*ir.Value]bool
	sites   []*noiseSite
	steps   int
}

// noiseSite is a product with a coin, or a selection by one, that keeps or zeroes elements of x.
type noiseSite struct {
	op    *ir.Op
	x     *ir.Value
	rand  *ir.Op
	views []*ir.Op // from the source's dims to those of the coin
	keep  float64  // probability that an element is kept
	scale float64  // what the kept are multiplied with
	below bool     // kept where u is below the cut
}

// follow reports whether all that is made of v, which holds h, are dropouts, and lists these.
func (s *noiseSource) follow(v *ir.Value, h noise, views []*ir.Op) bool {
	if s.steps++; s.results[v] || len(s.uses[v]) == 0 || len(views) > maxViews {
		return false
	}
	for _, op := range s.uses[v] {
		out := op.Out[0]
		if s.steps > maxViews*maxViews {
			return false
		}
		switch op.Def {
		case ops.ReshapeDef, ops.ExpandDef, ops.TransposeDef:
			if !s.follow(out, h, append(slices.Clone(views), op)) {
				return false
			}
			continue
		case ops.CastDef:
			if !h.coin && !out.Type.DType.IsFloat() || !s.follow(out, h, views) {
				return false
			}
			continue
		}
		next, ok := h.after(op, v)
		if ok {
			if !s.follow(out, next, views) {
				return false
			}
			continue
		}
		site := s.site(op, v, h, views)
		if site == nil || slices.ContainsFunc(s.sites, func(o *noiseSite) bool { return o.op == op }) { // it multiplies two of the coins
			return false
		}
		s.sites = append(s.sites, site)
	}
	return true
}

// after is what the result of op holds when its operand v holds h; false when that is neither a line nor a coin.
func (h noise) after(op *ir.Op, v *ir.Value) (noise, bool) {
	if op.Def == ops.WhereDef {
		yes, ok := uniform(op.In[1])
		no, ok2 := uniform(op.In[2])
		if op.In[0] != v || !h.coin || !ok || !ok2 {
			return h, false
		}
		return h.each(func(x float64) float64 {
			if x != 0 {
				return yes
			}
			return no
		}), true
	}
	if len(op.In) == 1 {
		switch {
		case op.Def == ops.NegDef:
			return h.each(func(x float64) float64 { return -x }), true
		case op.Def == ops.NotDef:
			return h.each(func(x float64) float64 { return 1 - x }), true
		case op.Def == ops.FloorDef && !h.coin && h.scale > 0 && h.shift >= 0 && h.shift < 1 && h.scale+h.shift > 1 && h.scale+h.shift <= 2:
			return noise{coin: true, cut: (1 - h.shift) / h.scale, high: 1}, true
		}
		return h, false
	}
	if len(op.In) != 2 {
		return h, false
	}
	first := op.In[0] == v
	c, ok := uniform(op.In[map[bool]int{true: 1, false: 0}[first]])
	if !ok {
		return h, false
	}
	switch op.Def {
	case ops.AddDef:
		return h.each(func(x float64) float64 { return x + c }), true
	case ops.SubDef:
		if first {
			return h.each(func(x float64) float64 { return x - c }), true
		}
		return h.each(func(x float64) float64 { return c - x }), true
	case ops.MulDef:
		return h.each(func(x float64) float64 { return x * c }), true
	case ops.DivDef:
		if first {
			return h.each(func(x float64) float64 { return x / c }), true
		}
	case ops.LtDef, ops.LeDef:
		return h.compared(c, first)
	case ops.GtDef, ops.GeDef:
		return h.compared(c, !first)
	}
	return h, false
}

// each applies a linear f to what a value holds.
func (h noise) each(f func(float64) float64) noise {
	if h.coin {
		h.low, h.high = f(h.low), f(h.high)
		return h
	}
	at0, at1 := f(h.shift), f(h.scale+h.shift)
	h.shift, h.scale = at0, at1-at0
	return h
}

// compared is the coin that a line below (or above) c is.
func (h noise) compared(c float64, below bool) (noise, bool) {
	if h.coin || h.scale == 0 {
		return h, false
	}
	cut := (c - h.shift) / h.scale
	if below == (h.scale > 0) {
		return noise{coin: true, cut: cut, low: 1}, true
	}
	return noise{coin: true, cut: cut, high: 1}, true
}

// site is op as a dropout by a coin v; nil when it is none.
func (s *noiseSource) site(op *ir.Op, v *ir.Value, h noise, views []*ir.Op) *noiseSite {
	if !h.coin || (h.low == 0) == (h.high == 0) || !(h.cut > 0 && h.cut <= 1) {
		return nil
	}
	site := &noiseSite{op: op, rand: s.rand, views: views, below: h.low != 0, scale: h.low + h.high, keep: h.cut}
	if !site.below {
		site.keep = 1 - h.cut
	}
	switch {
	case op.Def == ops.MulDef && op.In[0] == v && op.In[1] != v:
		site.x = op.In[1]
	case op.Def == ops.MulDef && op.In[1] == v && op.In[0] != v:
		site.x = op.In[0]
	case op.Def == ops.WhereDef && op.In[0] == v && op.In[1] != v && op.In[2] != v:
		kept, zeroed := op.In[1], op.In[2]
		if c, ok := uniform(zeroed); !ok || c != 0 { // kept where the coin is false
			kept, zeroed = zeroed, kept
			site.below, site.keep = !site.below, 1-site.keep
		}
		if c, ok := uniform(zeroed); !ok || c != 0 {
			return nil
		}
		site.x, site.scale = kept, 1
	default:
		return nil
	}
	if site.keep <= 0 || !s.scaled(site) {
		return nil
	}
	return site
}

// scaled reports whether what a site keeps is divided by the probability to keep it: there, behind or before it.
func (s *noiseSource) scaled(site *noiseSite) bool {
	one := func(x float64) bool { return math.Abs(x-1) < 1e-3 } // constants may be of half precision
	total := site.keep * site.scale
	if one(total) {
		return true
	}
	behind := total
	for v, n := site.op.Out[0], 0; n < maxViews && len(s.uses[v]) == 1 && !s.results[v]; n++ {
		op := s.uses[v][0]
		c, _, ok := factorOf(op, v)
		if !ok {
			break
		}
		if behind *= c; one(behind) {
			return true
		}
		v = op.Out[0]
	}
	before := total
	for v, n := site.x, 0; n < maxViews && v.Op != nil && len(v.Op.In) > 0; n++ {
		c, from, ok := factorOf(v.Op, nil)
		if !ok {
			break
		}
		if before *= c; one(before) {
			return true
		}
		v = from
	}
	return false
}

// uniform is the one number that every element of v is, when v is known.
func uniform(v *ir.Value) (float64, bool) {
	for v.Op != nil && v.Op.Def == ops.CastDef && v.Type.DType.IsFloat() {
		v = v.Op.In[0]
	}
	return ops.Uniform(v)
}

// factorOf is the constant that op multiplies an operand with (v, or whichever is not constant), 1 for what only moves elements.
func factorOf(op *ir.Op, v *ir.Value) (c float64, from *ir.Value, ok bool) {
	switch op.Def {
	case ops.ReshapeDef, ops.ExpandDef, ops.TransposeDef, ops.CastDef:
		return 1, op.In[0], true
	case ops.MulDef, ops.DivDef:
		if c, ok := uniform(op.In[1]); ok && (v == nil || op.In[0] == v) {
			if op.Def == ops.DivDef {
				c = 1 / c
			}
			return c, op.In[0], true
		}
		if c, ok := uniform(op.In[0]); ok && op.Def == ops.MulDef {
			return c, op.In[1], true
		}
	}
	return 0, nil, false
}

// agree reports whether all sites keep the same elements, so that they still do as dropouts of one stream.
func (s *noiseSource) agree() bool {
	for _, x := range s.sites[1:] {
		if x.keep != s.sites[0].keep || x.below != s.sites[0].below {
			return false
		}
	}
	return true
}

// rewriteDropouts puts dropouts in the place of sites.
func (w *Walker) rewriteDropouts(sites map[*ir.Op]*noiseSite) {
	f := w.B.F
	old := f.Ops
	f.Ops = nil
	subst := map[*ir.Value]*ir.Value{}
	for _, op := range old {
		for i, in := range op.In {
			if to := subst[in]; to != nil {
				op.In[i] = to
			}
		}
		if s := sites[op]; s != nil {
			if to := subst[s.x]; to != nil {
				s.x = to
			}
			w.B.Loc = op.Loc
			y := s.dropout(w.B)
			name := op.Out[0].Name
			w.B.Rename(op.Out[0], name+".spelled")
			subst[op.Out[0]] = w.B.Rename(y, name)
			continue
		}
		f.Ops = append(f.Ops, op)
	}
	for i, r := range f.Results {
		if to := subst[r.Value]; to != nil {
			f.Results[i].Value = to
		}
	}
	f.DCE()
}

// dropout is the site as a dropout: of x itself, or of ones that are spread over x as the source's numbers are.
func (s *noiseSite) dropout(b *ir.Builder) *ir.Value {
	counter, a := s.rand.In[0], s.rand.Attrs.(ops.RandAttrs)
	mean := s.keep * s.scale // in evaluation; what follows divides by it when it is not 1
	scaled := func(v *ir.Value) *ir.Value {
		if math.Abs(mean-1) < 1e-6 {
			return v
		}
		return ops.MulScalar(b, v, mean)
	}
	if len(s.views) == 0 {
		return ops.Dropout(b, scaled(s.x), counter, 1-s.keep, a.Seed)
	}
	m := ops.Dropout(b, ops.Full(b, ir.T(s.x.Type.DType, a.Dims...), 1), counter, 1-s.keep, a.Seed)
	for _, op := range s.views {
		m = b.Emit(op.Def, op.Attrs, m)
	}
	return ops.Mul(b, s.x, scaled(m))
}
