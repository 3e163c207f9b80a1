package roles

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
)

// PyTorch's exporter records which tensors an initializer was folded from. One that comes from a single parameter is
// that parameter or a part of it, so it is trained, is tied to other parts with the same elements, and is named after it.

// inverses are the functions of one operand that are undone to find the parameter below them, by PyTorch's name.
var inverses = map[string]struct {
	op   string
	undo func(float64) float64
}{
	"exp": {"Exp", math.Log}, "log": {"Log", math.Exp}, "neg": {"Neg", func(y float64) float64 { return -y }},
	"sigmoid": {"Sigmoid", func(y float64) float64 { return -math.Log(1/y - 1) }}, "tanh": {"Tanh", math.Atanh},
	"reciprocal": {"Reciprocal", func(y float64) float64 { return 1 / y }},
	"softplus":   {"Softplus", func(y float64) float64 { return y + math.Log(-math.Expm1(-y)) }},
}

var numberedRE = regexp.MustCompile(`_\d+$`)

// byOrigin finds what t is of the one parameter that it was folded from, or reports false.
func (r *Roles) byOrigin(t *model.Tensor) (bool, error) {
	params, _ := r.m.Torch.Origins(t.Name)
	if len(params) != 1 || !AutoNamed(r.m, t.Name) || t.Type.Elems() == 0 || len(r.Unbound(t)) == 0 || Matches(r.m.Options.Untie, t.Name) {
		return false, nil
	}
	origin := params[0]
	moved, lookup := r.m.Torch.Moved(t.Name)
	for _, p := range r.Params {
		if p.Role != RoleParameter || p.Name != origin && p.Origin != origin {
			continue
		}
		f, how, err := viewOf(t, p)
		if err != nil {
			return false, err
		}
		if r.foldedTranspose(t, p) {
			f, how = leafOf(p).permute(1, 0), "by the exporter's record the transpose"
		}
		if f != nil {
			r.ByName[t.Name] = &Source{f}
			p.Reason += fmt.Sprintf("; %q, %s of it, is tied to it", t.Name, how)
			return true, nil
		}
	}
	if r.Named[origin] == nil && r.m.Inits[origin] == nil {
		if done, err := r.undo(t, origin); done || err != nil {
			return done, err
		}
	}
	if !moved {
		return false, nil
	}
	return true, r.partOf(t, origin, lookup)
}

// softplusParts are names within the exporter's function for softplus.
var softplusParts = regexp.MustCompile(`^(beta|threshold|self_scaled|tmp|softplus)(_\d+)?(_cast)?$`)

// functions lists the ONNX functions that the exporter applied to the one parameter below t, the first one first; nil when
// they are not known to be among inverses. placed reports whether it also moved elements beyond adding dims of size 1.
func (r *Roles) functions(t *model.Tensor, a *ir.Array) (chain []string, placed bool) {
	found := map[string]bool{}
	for _, f := range append(slices.Clone(r.m.Torch.From[t.Name]), t.Name) {
		base := numberedRE.ReplaceAllString(f, "")
		switch {
		case r.m.Torch.Kinds[r.m.Torch.InSignature(f)] != "" || model.PlainNames.MatchString(f):
		case softplusParts.MatchString(f):
			found["softplus"] = true
		case inverses[base].undo != nil:
			found[base] = true
		case base == "unsqueeze" || base == "clone" || base == "_to_copy":
		case model.Placing.MatchString(f):
			placed = true
		default:
			return nil, false
		}
	}
	switch {
	case len(found) == 1:
		for f := range found {
			chain = []string{f}
		}
	case len(found) == 2 && found["exp"] && found["neg"]: // -exp(x) or exp(-x): the sign tells
		chain = []string{"neg", "exp"}
		if a.F[0] < 0 {
			chain = []string{"exp", "neg"}
		}
	}
	return chain, placed
}

// undo restores the parameter of which the exporter kept a function's value.
func (r *Roles) undo(t *model.Tensor, origin string) (bool, error) {
	if t.Type.Elems() > maxTable || t.Absent {
		return false, nil
	}
	a, err := t.Array()
	if err != nil {
		return false, err
	}
	chain, placed := r.functions(t, a)
	if chain == nil {
		return false, nil
	}
	x := ir.NewArray(a.Type)
	copy(x.F, a.F)
	for _, f := range slices.Backward(chain) {
		fold.Each(x.F, inverses[f].undo)
	}
	if slices.ContainsFunc(x.F, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		return false, nil
	}
	data := fold.Settle(x).Tensor().Data
	name := origin
	if placed {
		name = r.fresh(origin + ".part")
	}
	p := r.add(t, name, direct, RoleParameter, fmt.Sprintf("the exporter kept %q, %s of it; restored from that by the record of what it folded",
		t.Name, strings.Join(chain, ", then ")))
	if !placed && len(chain) > 0 && strings.HasPrefix(t.Name, "unsqueeze") {
		p.Type.Dims = fold.Squeezed(t.Type.Dims)
		p.Dims = p.Type.Dims
	}
	if placed {
		p.Origin = origin
	}
	p.Data = func() ([]byte, error) { return data, nil }
	f := leafOf(p)
	for _, name := range chain {
		f = f.apply(inverses[name].op)
	}
	r.ByName[t.Name] = &Source{f.reshape(t.Type.Dims)}
	return true, nil
}

// partOf makes a parameter of t, a folded part of the parameter called origin that the file does not have: rows that
// the model looks up at constant positions, a slice, the transpose. Rows that repeat are one row of the parameter.
func (r *Roles) partOf(t *model.Tensor, origin string, lookup bool) error {
	free := r.Named[origin] == nil && r.m.Inits[origin] == nil
	base := numberedRE.ReplaceAllString(t.Name, "")
	what := "what the model reads of it; the exporter folded " + base
	if lookup {
		what = "the rows that the model reads at constant positions, which the exporter folded"
	}
	rows, index, dim, err := uniqueRows(t)
	switch {
	case err != nil:
		return err
	case base == "t" && len(r.m.Torch.From[t.Name]) == 1 && free && len(t.Type.Dims) == 2:
		p := r.add(t, origin, transposed, RoleParameter, "transpose folded by the exporter; name and layout restored from its record")
		r.ByName[t.Name] = &Source{leafOf(p).permute(1, 0)}
		return nil
	case !lookup && batchRepeats(r.m, t):
		name := r.fresh(origin + ".rows")
		if free && base == "expand" {
			name = origin
		}
		p := r.add(t, name, repeated, RoleParameter, "part of "+origin+": "+what+"; stored once, it was expanded along the batch")
		p.Origin = origin
		r.ByName[t.Name] = &Source{leafOf(p).expand(t.Type.Dims)}
		return nil
	case free && len(fold.Squeezed(t.Type.Dims)) == 1 && (base == "view" || base == "unsqueeze" || base == "reshape"):
		p := r.add(t, origin, flat, RoleParameter, "a vector that the exporter gave dimensions of size 1; name restored from its record")
		r.ByName[t.Name] = &Source{leafOf(p).reshape(t.Type.Dims)}
		return nil
	case rows != nil:
		p := r.add(t, r.fresh(origin+".rows"), direct, RoleParameter, fmt.Sprintf("part of %s: %s; %d different of %d", origin, what, len(rows)/max(rowBytes(t, dim), 1), len(index)))
		p.Origin = origin
		width := t.Type.Dims[dim]
		p.Type.Dims = []int{len(rows) / max(rowBytes(t, dim), 1), width}
		p.Dims, p.Data = p.Type.Dims, func() ([]byte, error) { return rows, nil }
		rest := slices.Delete(slices.Clone(t.Type.Dims), dim, dim+1)
		f := leafOf(p).pick(index).reshape(append(slices.Clone(rest), width))
		perm := []int{}
		for i := range t.Type.Dims {
			switch {
			case i < dim:
				perm = append(perm, i)
			case i == dim:
				perm = append(perm, len(rest))
			default:
				perm = append(perm, i-1)
			}
		}
		r.ByName[t.Name] = &Source{f.permute(perm...)}
		return nil
	}
	suffix := ".part"
	if lookup {
		suffix = ".rows"
	}
	p := r.add(t, r.fresh(origin+suffix), direct, RoleParameter, "part of "+origin+": "+what)
	p.Origin = origin
	r.ByName[t.Name] = &Source{leafOf(p)}
	return nil
}

// fresh is a name that no parameter or initializer has.
func (r *Roles) fresh(base string) string {
	name := base
	for k := 1; r.Named[name] != nil || r.m.Inits[name] != nil; k++ {
		name = fmt.Sprintf("%s.%d", base, k)
	}
	return name
}

func rowBytes(t *model.Tensor, dim int) int { return t.Type.Dims[dim] * t.Type.DType.Size() }

// uniqueRows finds the dim of t along which its vectors repeat most, such as the heads of a relative position bias: it
// gives the different vectors in order of their first occurrence and, for each place, which one stands there; nil when
// no vector occurs twice, and when all elements are equal, which tells nothing.
func uniqueRows(t *model.Tensor) (rows []byte, index []int, dim int, err error) {
	d, elems := t.Type.Dims, t.Type.Elems()
	if len(d) < 2 || elems > maxTable || t.Absent {
		return nil, nil, 0, nil
	}
	if uniform, err := uniform(t); err != nil || uniform {
		return nil, nil, 0, err
	}
	data, err := t.Bytes()
	if err != nil {
		return nil, nil, 0, err
	}
	best, size := elems, t.Type.DType.Size()
	for k := range d {
		if d[k] < 2 {
			continue
		}
		moved, strides := permuted(d, k)
		seen, at := map[string]int{}, []int{}
		var kept []byte
		all := pickBytes(data, size, moved, strides, 0)
		row := d[k] * size
		for i := 0; i < len(all); i += row {
			key := string(all[i : i+row])
			j, ok := seen[key]
			if !ok {
				j = len(seen)
				seen[key] = j
				kept = append(kept, key...)
			}
			at = append(at, j)
		}
		if count := len(seen) * d[k]; count < best || count == best && rows != nil && d[k] > d[dim] {
			best, rows, index, dim = count, kept, at, k
		}
	}
	return rows, index, dim, nil
}

// permuted gives d with dim k last, and the strides of that view.
func permuted(d []int, k int) (dims, strides []int) {
	own := ir.Strides(d)
	for i := range d {
		if i != k {
			dims, strides = append(dims, d[i]), append(strides, own[i])
		}
	}
	return append(dims, d[k]), append(strides, own[k])
}

// viewOf is t as movement or scaling of p's elements, with words for it; nil when it is neither or cannot be told.
func viewOf(t *model.Tensor, p *Parameter) (*Form, string, error) {
	if t.Type.DType != p.Type.DType || t.Type.Elems() > maxTable || p.Type.Elems() > maxTable || t.Absent || p.Absent {
		return nil, "", nil
	}
	a, err := t.Bytes()
	if err != nil {
		return nil, "", err
	}
	b, err := p.Data()
	if err != nil {
		return nil, "", err
	}
	same := leafOf(p)
	if bytes.Equal(a, b) {
		return same.reshape(t.Type.Dims), "exactly a copy", nil
	}
	d, pd := t.Type.Dims, p.Type.Dims
	if len(d) == 2 && len(pd) == 2 && d[0] == pd[1] && d[1] == pd[0] {
		if bytes.Equal(transposeBytes(b, pd[0], pd[1], p.Type.DType.Size()), a) {
			return same.permute(1, 0), "exactly the transpose", nil
		}
		if c := ratio(a, transposeBytes(b, pd[0], pd[1], p.Type.DType.Size()), t.Type); c != 0 {
			return same.permute(1, 0).times(c), fmt.Sprintf("%.6g times the transpose", c), nil
		}
	}
	if len(a) == len(b) {
		if c := ratio(a, b, t.Type); c != 0 {
			return same.reshape(t.Type.Dims).times(c), fmt.Sprintf("%.6g times the values", c), nil
		}
	}
	if f := placed(a, b, t.Type.DType.Size(), same); f != nil {
		return f.reshape(t.Type.Dims), "a rearrangement or part", nil
	}
	return nil, "", nil
}

// ratio is c where a is c times b up to rounding, 0 when there is none or too little to tell.
func ratio(a, b []byte, typ ir.Type) float64 {
	x, y := (&ir.Tensor{Type: typ, Data: a}).Array(), (&ir.Tensor{Type: typ, Data: b}).Array()
	c, told := 0.0, 0
	for i := range x.F {
		if y.F[i] == 0 && x.F[i] == 0 {
			continue
		}
		q := x.F[i] / y.F[i]
		if c == 0 {
			c = q
		}
		if !(math.Abs(q-c) <= 1e-6*math.Abs(c)) { // also NaN and infinity
			return 0
		}
		told++
	}
	if told < 4 {
		return 0
	}
	return float64(float32(c))
}

// placed finds where each element of a stands in b, whose elements must all be different, and builds that: rows of the
// longest common length that are sliced, permuted or picked.
func placed(a, b []byte, size int, f *Form) *Form {
	where := make(map[string]int, len(b)/size)
	for i := 0; i < len(b); i += size {
		where[string(b[i:i+size])] = i / size
	}
	n, m := len(a)/size, len(b)/size
	if len(where) != m || m == 0 {
		return nil
	}
	at := make([]int, n)
	for i := range at {
		j, ok := where[string(a[i*size:(i+1)*size])]
		if !ok {
			return nil
		}
		at[i] = j
	}
	width := 1
	for k := min(n, m); k > 1; k-- {
		if n%k == 0 && m%k == 0 && inRuns(at, k) {
			width = k
			break
		}
	}
	rows := make([]int, n/width)
	for i := range rows {
		rows[i] = at[i*width] / width
	}
	f = f.reshape([]int{m / width, width})
	if dims, perm := radix(rows, m/width); perm != nil {
		return f.reshape(append(dims, width)).permute(append(perm, len(perm))...)
	}
	for i := range rows {
		if rows[i] != rows[0]+i {
			return f.pick(rows)
		}
	}
	return f.slice(0, rows[0], len(rows))
}

// inRuns reports whether indices come in aligned runs of k.
func inRuns(at []int, k int) bool {
	for i, j := range at {
		if i%k == 0 && j%k != 0 || i%k != 0 && j != at[i-1]+1 {
			return false
		}
	}
	return true
}

// radix recognizes a permutation of m indices that is a transposition of dims: m counted in digits of dims, with the
// digits taken in another order. nil when it is none.
func radix(at []int, m int) (dims, perm []int) {
	if len(at) != m || m < 2 || at[0] != 0 {
		return nil, nil
	}
	var sizes, strides []int // innermost first
	for block := 1; block < m; {
		stride, count := at[block], 1
		for count*block < m && at[count*block] == count*stride {
			count++
		}
		for m%(block*count) != 0 {
			count--
		}
		if count < 2 {
			return nil, nil
		}
		sizes, strides = append(sizes, count), append(strides, stride)
		block *= count
	}
	for i, j := range at {
		want, rest := 0, i
		for k, s := range sizes {
			want += rest % s * strides[k]
			rest /= s
		}
		if want != j {
			return nil, nil
		}
	}
	order := make([]int, len(sizes)) // dims of the original, outermost first
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return strides[y] - strides[x] })
	for _, k := range order {
		dims = append(dims, sizes[k])
	}
	for k := len(sizes) - 1; k >= 0; k-- {
		perm = append(perm, slices.Index(order, k))
	}
	return dims, perm
}

// lostNames lists those of names that only arithmetic of the exporter's kept, in the order given.
func (r *Roles) lostNames(names []string) []string {
	var lost []string
	for _, name := range names {
		if r.Named[name] != nil {
			continue
		}
		if slices.ContainsFunc(r.Params, func(p *Parameter) bool { return p.Origin == name }) {
			continue
		}
		lost = append(lost, name)
	}
	return lost
}

// gone reports whether some node's recorded PyTorch call reads the result of arithmetic that no node of the file makes:
// a product with one or a sum with zero that the exporter left out.
func (r *Roles) gone() bool {
	made := map[string]bool{}
	for _, n := range r.m.Nodes {
		for _, o := range n.Out {
			made[o] = true
		}
		if name, ok := strings.CutPrefix(n.Loc.Node, "node_"); ok {
			made[name] = true
		}
		made[n.Torch.Name] = true
	}
	for _, from := range r.m.Torch.From {
		for _, f := range from {
			made[f] = true
		}
	}
	for _, n := range r.m.Nodes {
		for _, a := range n.Torch.Args {
			for _, p := range placeholderRE.FindAllString(a, -1) {
				if arithmeticRE.MatchString(p[1:]) && !made[p[1:]] && r.m.Inits[p[1:]] == nil {
					return true
				}
			}
		}
	}
	return false
}

var arithmeticRE = regexp.MustCompile(`^(add|mul|div|sub|pow|where)(_\d+)?$`)
