package image

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// place matches where a compiler's message says it is: NAME(LINE): error.
var place = regexp.MustCompile(`^(\S+)\((\d+)\): error`)

// maxExcerpts bounds the messages that are shown with their lines.
const maxExcerpts = 5

// excerpts is the compiler's log with the line that each of the first errors is about below it.
func excerpts(u unit, log string) string {
	texts := map[string]string{u.name: u.text}
	for _, h := range u.headers {
		texts[h.Name] = h.Text
	}
	var out []string
	shown := 0
	for _, line := range strings.Split(log, "\n") {
		out = append(out, line)
		m := place.FindStringSubmatch(line)
		if m == nil || shown == maxExcerpts {
			continue
		}
		n, _ := strconv.Atoi(m[2])
		if lines := strings.Split(texts[m[1]], "\n"); n >= 1 && n <= len(lines) && texts[m[1]] != "" {
			out = append(out, fmt.Sprintf("  %d | %s", n, lines[n-1]))
			shown++
		}
	}
	return strings.Join(out, "\n")
}
