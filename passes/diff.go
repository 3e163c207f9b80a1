package passes

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// lineDiff shows how b differs from a, by lines, with three lines of context and an "@@ line" header for
// each hunk. Lines that occur once in both texts anchor it (patience diff), which suits programs whose
// lines each define a different name and keeps the cost at n log n.
func lineDiff(a, b string) string {
	x, y := strings.SplitAfter(a, "\n"), strings.SplitAfter(b, "\n")
	var out strings.Builder
	writeHunks(&out, x, y, patience(x, y, 0, 0))
	return out.String()
}

// match pairs line i of the old text with line j of the new.
type match struct{ i, j int }

// patience lists the matched lines of x and y, increasing; i0 and j0 are added to their numbers.
func patience(x, y []string, i0, j0 int) []match {
	var head, tail []match
	for len(x) > 0 && len(y) > 0 && x[0] == y[0] {
		head = append(head, match{i0, j0})
		x, y, i0, j0 = x[1:], y[1:], i0+1, j0+1
	}
	for len(x) > 0 && len(y) > 0 && x[len(x)-1] == y[len(y)-1] {
		tail = append(tail, match{i0 + len(x) - 1, j0 + len(y) - 1})
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	slices.Reverse(tail)
	anchors := uniqueMatches(x, y)
	pi, pj := 0, 0
	for _, m := range anchors {
		head = append(head, patience(x[pi:m.i], y[pj:m.j], i0+pi, j0+pj)...)
		head = append(head, match{i0 + m.i, j0 + m.j})
		pi, pj = m.i+1, m.j+1
	}
	if len(anchors) > 0 {
		head = append(head, patience(x[pi:], y[pj:], i0+pi, j0+pj)...)
	}
	return append(head, tail...)
}

// uniqueMatches is the longest increasing run of lines that occur exactly once in x and once in y.
func uniqueMatches(x, y []string) []match {
	count := map[string][2]int{}
	at := map[string]int{}
	for _, l := range x {
		c := count[l]
		c[0]++
		count[l] = c
	}
	for j, l := range y {
		c := count[l]
		c[1]++
		count[l] = c
		at[l] = j
	}
	var all []match
	for i, l := range x {
		if count[l] == [2]int{1, 1} {
			all = append(all, match{i, at[l]})
		}
	}
	var piles []int // index in all of the smallest end of a run of each length
	back := make([]int, len(all))
	for k, m := range all {
		p := sort.Search(len(piles), func(p int) bool { return all[piles[p]].j >= m.j })
		back[k] = -1
		if p > 0 {
			back[k] = piles[p-1]
		}
		if p == len(piles) {
			piles = append(piles, k)
		} else {
			piles[p] = k
		}
	}
	var out []match
	if len(piles) > 0 {
		for k := piles[len(piles)-1]; k >= 0; k = back[k] {
			out = append(out, all[k])
		}
	}
	slices.Reverse(out)
	return out
}

// writeHunks prints the differences between matched lines.
func writeHunks(out *strings.Builder, x, y []string, matches []match) {
	const context = 3
	i, j, pending, shown := 0, 0, 0, 0
	line := func(sign, l string) {
		if l != "" {
			out.WriteString(sign + strings.TrimSuffix(l, "\n") + "\n")
		}
	}
	for _, m := range append(matches, match{len(x), len(y)}) {
		if m.i > i || m.j > j {
			if pending == 0 {
				from := max(shown, i-context)
				fmt.Fprintf(out, "@@ line %d\n", j-(i-from)+1)
				for _, l := range x[from:i] {
					line(" ", l)
				}
			}
			for ; i < m.i; i++ {
				line("-", x[i])
			}
			for ; j < m.j; j++ {
				line("+", y[j])
			}
			pending, shown = context, i
		}
		if m.i < len(x) {
			if pending > 0 {
				line(" ", x[m.i])
				pending--
				shown = m.i + 1
			}
			i, j = m.i+1, m.j+1
		}
	}
}
