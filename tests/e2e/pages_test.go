package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// pageCommands are the gtc commands of a page, in order: its indented lines, continuation lines joined. Those on files that
// only stand for the reader's own are left out.
func pageCommands(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	var out []string
	for _, line := range strings.Split(joined, "\n") {
		if !strings.HasPrefix(line, "    ") || strings.Contains(line, "REF.npz") {
			continue
		}
		line = strings.Join(strings.Fields(line), " ")
		if regexp.MustCompile(`^([A-Z_]+=\S+ )*(bin/)?gtc `).MatchString(line) {
			out = append(out, line)
		}
	}
	return out
}

var (
	lengthFlag = regexp.MustCompile(`--(epochs|steps) \d+`)
	tokenFile  = regexp.MustCompile(`examples/shakespeare/(train|val)\.bin`)
)

// The commands of the pages work as they stand. Training is cut to two steps, unless GTC_LONG is set: then it must come to
// what the examples' pages promise.
func TestPages(t *testing.T) {
	place := t.TempDir() // looks like the repository after go build -o bin/gtc ./cmd/gtc
	bin := filepath.Join(place, "bin")
	if err := os.Mkdir(bin, 0o777); err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{gtc(t): filepath.Join(bin, "gtc"), examples: filepath.Join(place, "examples")} {
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	plays(t)
	env := []string{"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
	whole := os.Getenv("GTC_LONG") != ""
	for _, page := range []string{"README.md", "examples/mnist/README.md", "examples/shakespeare/README.md"} {
		commands := pageCommands(t, filepath.Join(root, page))
		if len(commands) < 2 {
			t.Errorf("%s: only %d commands were found", page, len(commands))
		}
		for _, line := range commands {
			// The page makes an environment from PyPI. Here what is installed serves, or the program takes its kernels as source.
			line = strings.Replace(line, " --cuda-path nvrtc", "", 1)
			line = tokenFile.ReplaceAllString(line, scratch+"/$1.bin")
			if !whole {
				line = lengthFlag.ReplaceAllString(line, "--steps 2")
			}
			code, text := command(context.Background(), place, env, "sh", "-c", line)
			t.Logf("%s: %s", page, line)
			told(t, code, 0, text)
			if whole && page != "README.md" && strings.Contains(line, "gtc run") {
				promised(t, line, text)
			}
		}
	}
}

// promised holds the end of a whole training run to the bounds: 98 % of the unseen digits, a loss of 1.90 over all of the
// plays' last tenth.
func promised(t *testing.T, line, text string) {
	t.Helper()
	find, worst := regexp.MustCompile(`eval at step \d+  loss \S+  accuracy (\S+) %`), 98.0
	if strings.Contains(line, "gpt") {
		find, worst = regexp.MustCompile(`eval at step \d+  loss (\S+) `), -1.90
	}
	all := find.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		t.Fatalf("%s printed no evaluation:\n%s", line, text)
	}
	end := all[len(all)-1]
	t.Log(end[0])
	if v, err := strconv.ParseFloat(end[1], 64); err != nil || worst > 0 && v < worst || worst < 0 && -v < worst {
		t.Errorf("%s: %s", line, end[0])
	}
}
