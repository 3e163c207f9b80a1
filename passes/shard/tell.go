package shard

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/passes/pass"
)

// tell remarks for each class of parameters how it lies, and why.
func (t *tensorSearch) tell(c *pass.Context) {
	for _, k := range t.classes {
		p := k.params[0]
		like := ""
		if n := len(k.params) - 1; n == 1 {
			like = fmt.Sprintf("; another %s has the same layout", p.Type)
		} else if n > 1 {
			like = fmt.Sprintf("; %d more %s have the same layout", n, p.Type)
		}
		c.Remark(p, "%s%s", t.why(k), like)
	}
	c.Remark(nil, "tensor parallelism over tp=%d: a step costs each rank %.3g, without it %.3g (in operations; a message counts as the operations that take as long)", t.n, t.best, t.none)
}

// why says how the parameters of k lie.
func (t *tensorSearch) why(k *class) string {
	p := k.params[0]
	lies := t.s.layouts[t.s.lay[t.s.index[p]]]
	if _, ok := t.constraints[p.Name]; ok {
		return fmt.Sprintf("has the layout that --shard gives: %s", or(lies.String(), "replicated"))
	}
	if !lies.IsReplicated() {
		if k.seed >= 0 {
			return fmt.Sprintf("is split over tp: %s", lies)
		}
		return fmt.Sprintf("is split over tp: %s, because all that read it need that part", lies)
	}
	var not []string
	for d, n := range p.Type.Dims {
		if n%t.n != 0 {
			not = append(not, fmt.Sprintf("dimension %d of size %d", d, n))
		}
	}
	if len(not) == len(p.Type.Dims) {
		return fmt.Sprintf("is replicated because none of its dimensions is divisible by tp=%d: %s", t.n, strings.Join(not, ", "))
	}
	text := "is replicated because splitting it costs more in messages than it saves"
	if len(not) > 0 {
		text += fmt.Sprintf("; not divisible by tp=%d: %s", t.n, strings.Join(not, ", "))
	}
	return text
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
