package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// beGTC is the variable that makes the test binary the gtc command, so that scripts run it without a build of its own and
// go test's cache knows what they depend on.
const beGTC = "GTC_TEST_IS_GTC"

func TestMain(m *testing.M) {
	if os.Getenv(beGTC) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	flag.Parse()
	os.Exit(m.Run())
}

// limit bounds one command.
const limit = 5 * time.Minute

// TestScripts runs tests/scripts/*.txtar. A script is the comment of a txtar file whose files lie in its working folder,
// outside the repository. Lines:
//
//	gtc ARG…            run gtc, or another program by its name; it must exit with 0
//	N gtc ARG…          the same, with exit code N
//	stdout REGEXP       the last command's output has a line that matches; ! stdout: none
//	stderr REGEXP       the same for standard error
//	exists PATH         the file exists; ! exists: not
//	truncate PATH N     cut a file to N bytes
//	env NAME=VALUE      for the following commands
//	# …                 a comment
//
// Words may be quoted with ' and hold $NAME; $MODELS is the folder of shared models, and a script that uses it is skipped
// where that is absent.
func TestScripts(t *testing.T) {
	list, err := filepath.Glob("../../tests/scripts/*.txtar")
	if err != nil || len(list) == 0 {
		t.Fatal("there are no scripts", err)
	}
	for _, path := range list {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{t: t, dir: t.TempDir(), env: map[string]string{}}
			s.models(string(a.Comment))
			for _, f := range a.Files {
				to := filepath.Join(s.dir, filepath.FromSlash(f.Name))
				if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, f.Data, 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			for i, line := range strings.Split(string(a.Comment), "\n") {
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					s.at = fmt.Sprintf("%s:%d: %s", path, i+1, line)
					s.line(words(t, line))
				}
			}
		})
	}
}

type script struct {
	t              *testing.T
	dir, at        string
	env            map[string]string
	stdout, stderr string
}

// models finds the shared models, or skips a script that needs them.
func (s *script) models(text string) {
	if strings.Contains(text, "$MODELS") {
		s.env["MODELS"] = fixtures.Path(s.t, "models")
	}
}

// words splits a line at blanks outside quotes.
func words(t *testing.T, line string) []string {
	var out []string
	word, quoted, any := "", false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, any = !quoted, true
		case r == ' ' && !quoted:
			if any {
				out = append(out, word)
			}
			word, any = "", false
		default:
			word, any = word+string(r), true
		}
	}
	if quoted {
		t.Fatalf("%s: quote without end", line)
	}
	if any {
		out = append(out, word)
	}
	return out
}

func (s *script) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n%s\nstdout:\n%s\nstderr:\n%s", s.at, fmt.Sprintf(format, args...), s.stdout, s.stderr)
}

func (s *script) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(s.dir, name)
}

func (s *script) line(w []string) {
	for i := range w {
		w[i] = os.Expand(w[i], func(name string) string {
			if v, ok := s.env[name]; ok {
				return v
			}
			return "$" + name
		})
	}
	not := w[0] == "!"
	if not {
		w = w[1:]
	}
	switch w[0] {
	case "stdout", "stderr":
		text := s.stdout
		if w[0] == "stderr" {
			text = s.stderr
		}
		re, err := regexp.Compile("(?m)" + w[1])
		if err != nil {
			s.fail("%v", err)
		}
		if re.MatchString(text) == not {
			s.fail("%s", map[bool]string{true: "it matches", false: "no line matches"}[not])
		}
	case "exists":
		if _, err := os.Stat(s.path(w[1])); (err == nil) == not {
			s.fail("exists is %v", err == nil)
		}
	case "truncate":
		n, err := strconv.ParseInt(w[2], 10, 64)
		if err = errors.Join(err, os.Truncate(s.path(w[1]), n)); err != nil {
			s.fail("%v", err)
		}
	case "env":
		name, v, _ := strings.Cut(w[1], "=")
		s.env[name] = v
	default:
		want := 0
		if n, err := strconv.Atoi(w[0]); err == nil {
			want, w = n, w[1:]
		}
		s.run(want, w)
	}
}

// run starts a program in the working folder.
func (s *script) run(want int, w []string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	program := w[0]
	if program == "gtc" {
		self, err := os.Executable()
		if err != nil {
			s.fail("%v", err)
		}
		program = self
	}
	if strings.HasPrefix(program, "./") {
		program = s.path(program)
	}
	cmd := exec.CommandContext(ctx, program, w[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), beGTC+"=1")
	for k, v := range s.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	s.stdout, s.stderr = out.String(), errs.String()
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		s.fail("%v", err)
	}
	if ctx.Err() != nil {
		s.fail("it took longer than %v", limit)
	}
	if code != want {
		s.fail("exit code %d, want %d", code, want)
	}
	if strings.Contains(s.stderr, "goroutine ") || strings.Contains(s.stderr, "runtime error") {
		s.fail("it printed a stack trace")
	}
}
