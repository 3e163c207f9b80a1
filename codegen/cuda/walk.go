package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir/kir"
)

// each prints the loop over the chunks of w, with the indices of each chunk, round body.
func (p *printer) each(w *walk, body func()) {
	if w.chunks > 1 {
		p.Line("#pragma unroll")
		p.Open("for (int c = 0; c < %d; c++)", w.chunks)
	} else {
		p.Open("")
	}
	inner := p.captured(func() {
		if w.cond != "" {
			p.Open("if (%s)", w.cond)
		}
		if !w.crosses(p.k) {
			p.decode(w.dims, "j", "j")
		}
		body()
		if w.cond != "" {
			p.Close()
		}
	})
	start := p.captured(func() {
		for _, l := range strings.Split(w.start, "\n") {
			if l != "" {
				p.Line("%s", l)
			}
		}
		if says(inner, "j") {
			p.Line("const %s j = %s;", p.index(), w.j)
		}
	})
	if w.chunks == 1 && (says(inner, "c") || says(start, "c")) {
		p.Line("const int c = 0;")
	}
	p.WriteString(start + inner)
	p.Close()
}

// captured is what body prints, which is taken back.
func (p *printer) captured(body func()) string {
	n := p.Len()
	body()
	all := p.String()
	p.Reset()
	p.WriteString(all[:n])
	return all[n:]
}

// says reports whether text has the word.
func says(text, word string) bool {
	for {
		i := strings.Index(text, word)
		if i < 0 {
			return false
		}
		end := i + len(word)
		if (i == 0 || !letter(text[i-1])) && (end == len(text) || !letter(text[end])) {
			return true
		}
		text = text[end:]
	}
}

func letter(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// decode prints the index of each of dims, named by prefix, from their common number from.
func (p *printer) decode(dims []int, from, prefix string) {
	stride := 1
	for i := len(dims) - 1; i >= 0; i-- {
		d := dims[i]
		switch {
		case !p.moves(d):
		case len(dims) == 1:
			p.Line("const %s %s%d = %s;", p.index(), prefix, d, from)
		case i == 0:
			p.Line("const %s %s%d = %s / %d;", p.index(), prefix, d, from, stride)
		case stride == 1:
			p.Line("const %s %s%d = %s %% %d;", p.index(), prefix, d, from, p.k.Dims[d])
		default:
			p.Line("const %s %s%d = %s / %d %% %d;", p.index(), prefix, d, from, stride, p.k.Dims[d])
		}
		stride *= p.k.Dims[d]
	}
}

// moves reports whether some access depends on the index of dim d.
func (p *printer) moves(d int) bool {
	return slices.ContainsFunc(p.k.Insts, func(in kir.Inst) bool { return d < len(in.Access.Strides) && in.Access.Strides[d] != 0 })
}

// offset prints "i0 * 512 + i1" for those of dims that a moves along, with indices named by prefix; "" when there are none.
func offset(a kir.Access, dims []int, prefix string) string {
	var parts []string
	for _, d := range dims {
		switch s := a.Strides[d]; s {
		case 0:
		case 1:
			parts = append(parts, fmt.Sprintf("%s%d", prefix, d))
		default:
			parts = append(parts, fmt.Sprintf("%s%d * %d", prefix, d, s))
		}
	}
	return strings.Join(parts, " + ")
}
