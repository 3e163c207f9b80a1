package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// aside are the commands of the pages that TestPages does not run, and why.
var aside = map[string]string{
	"go build -o bin/gtc ./cmd/gtc":         "made once for all tests",
	"go run ./examples/shakespeare/prepare": "made once for all tests",
	"go test ./...":                         "this test is a part of it; .ci/run runs it to the letter",
	"examples/mnist/run.sh":                 "builds the whole again: TestFreshCopy runs it",
	"python3 -m venv nvrtc && nvrtc/bin/pip install 'nvidia-cuda-nvrtc==13.0.*'": ".ci/run fetches it",
}

// pageCommands are the commands of a page, in order: its indented lines, continuation lines joined. Those on files that
// only stand for the reader's own, and those of aside, are left out; a line that is neither is an error.
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
		switch {
		case regexp.MustCompile(`^([A-Z_]+=\S+ )*(bin/)?gtc `).MatchString(line):
			out = append(out, line)
		case aside[line] == "":
			t.Errorf("%s: nothing runs the line %q", page, line)
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
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{"bin/gtc": gtc(t), "examples": filepath.Join(here, "examples"), "docs": filepath.Join(here, "docs")} {
		if err := os.Symlink(from, filepath.Join(place, to)); err != nil {
			t.Fatal(err)
		}
	}
	plays(t)
	env := []string{"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
	whole := os.Getenv("GTC_LONG") != ""
	for _, page := range []string{"README.md", "docs/guide.md", "examples/mnist/README.md", "examples/shakespeare/README.md"} {
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
			if whole && strings.HasPrefix(page, "examples") && strings.Contains(line, "gtc run") {
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

// TestFreshCopy: what is under version control is all that the first command of the README needs. It builds gtc and trains for five
// epochs, so that it waits for GTC_LONG=1.
func TestFreshCopy(t *testing.T) {
	if os.Getenv("GTC_LONG") == "" {
		t.Skip("a fresh copy is NOT TESTED: GTC_LONG=1 builds one")
	}
	code, files := command(context.Background(), root, nil, "git", "ls-files", "-z")
	if code != 0 {
		t.Skipf("this is no checkout: %s", files)
	}
	place := t.TempDir()
	for _, name := range strings.Split(strings.TrimSuffix(files, "\x00"), "\x00") {
		copyFile(t, filepath.Join(root, name), filepath.Join(place, name))
	}
	const line = "examples/mnist/run.sh"
	code, text := command(context.Background(), place, nil, line)
	told(t, code, 0, text)
	promised(t, line, text)
}

// copyFile copies a file with its mode, and makes the folders that it lies in.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if os.IsNotExist(err) {
		return // deleted, and not committed yet
	}
	text, err2 := os.ReadFile(from)
	if err := errors.Join(err, err2, os.MkdirAll(filepath.Dir(to), 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, info.Mode()); err != nil {
		t.Fatal(err)
	}
}
