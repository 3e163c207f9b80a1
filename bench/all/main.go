// Command all measures every figure of docs/measured.md by the command that the page gives with it, and writes the page.
//
//	go run ./bench/all [-only mnist,sparse] [-most 5m] [-again] [-list] [-write]
//
// It must run in the repository's root. A figure that this machine has measured today is not measured again, so that a run that
// was interrupted goes on where it was; -again measures it all the same. -only takes the figures whose names contain one of the
// words, -most those that take no longer than that, going by what they took on two cores. Results are kept in
// bench/all/results.json as soon as they are there, each with its date and machine. A figure whose needs are not met, or whose
// command fails, keeps its earlier result, and is told; the exit status is then 1. -list prints the names, -write writes the page alone.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/runtime/device/cpu"
)

// The files, relative to the repository's root.
const (
	page    = "docs/measured.md"
	results = "bench/all/results.json"
)

// result is what a figure came to.
type result struct {
	Text    string `json:"text"`
	Date    string `json:"date"` // YYYY-MM-DD
	Machine string `json:"machine"`
	ByHand  bool   `json:"by_hand,omitempty"` // written down by a person, who may have run more than the command
}

func main() {
	only := flag.String("only", "", "figures whose names contain one of these `WORDS`, separated by commas")
	most := flag.Duration("most", 0, "leave out figures that take longer than this; 0 for none")
	again := flag.Bool("again", false, "also those that this machine has measured today")
	list := flag.Bool("list", false, "print the names of the figures, how long they take and what they need")
	write := flag.Bool("write", false, "write "+page+" from the results that there are")
	flag.Parse()
	chosen := choose(figures, strings.Split(*only, ","), *most)
	if *list {
		for _, f := range chosen {
			fmt.Printf("%-22s %8s  %s\n", f.name, f.takes, strings.Join(f.needs, ", "))
		}
		return
	}
	if *write {
		chosen = nil
	}
	if err := run(chosen, *again); err != nil {
		fmt.Fprintln(os.Stderr, "bench/all:", err)
		os.Exit(1)
	}
}

// choose lists the figures of which the name contains one of the words, and that take no longer than most.
func choose(all []figure, words []string, most time.Duration) []figure {
	var out []figure
	for _, f := range all {
		if (most == 0 || f.takes <= most) && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(f.name, w) }) {
			out = append(out, f)
		}
	}
	return out
}

// run measures figures and writes the page after each.
func run(list []figure, again bool) error {
	have, err := read(results)
	if err != nil {
		return err
	}
	today, here := time.Now().UTC().Format(time.DateOnly), machine()
	var faults []error
	for _, f := range list {
		if old := have[f.name]; !again && !old.ByHand && old.Date == today && old.Machine == here {
			continue
		}
		if why := f.lacks(); why != "" {
			faults = append(faults, fmt.Errorf("%s: not measured: %s", f.name, why))
			continue
		}
		fmt.Printf("%s: %s\n", f.name, f.command)
		text, err := f.measure()
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", f.name, err))
			continue
		}
		fmt.Printf("  %s\n", text)
		have[f.name] = result{Text: text, Date: today, Machine: here}
		if err := save(have); err != nil {
			return err
		}
	}
	return errors.Join(append(faults, save(have))...)
}

// measure runs the figure's command and reads its output.
func (f *figure) measure() (string, error) {
	var out bytes.Buffer
	c := exec.Command("sh", "-c", f.command)
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, tail(out.String(), 20))
	}
	text, ok := f.reads.in(out.String())
	if !ok {
		return "", fmt.Errorf("its output does not have the figure:\n%s", tail(out.String(), 20))
	}
	return text, nil
}

// tail is the last n lines.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// machine says what this machine is, but not whose: the processor, its cores, what it is known for.
func machine() string {
	text := fmt.Sprintf("%s, %d cores", cpu.Model(), runtime.NumCPU())
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return text
	}
	for _, feature := range []struct{ flag, name string }{{"avx512f", "AVX-512"}, {"avx512_bf16", "AVX-512 BF16"}, {"amx_bf16", "AMX"}} {
		if bytes.Contains(info, []byte(" "+feature.flag+" ")) {
			text += ", " + feature.name
		}
	}
	return text
}

// read reads the results that there are.
func read(path string) (map[string]result, error) {
	have := map[string]result{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return have, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &have); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return have, nil
}

// save writes the results and the page, each whole or not at all.
func save(have map[string]result) error {
	text, err := json.MarshalIndent(have, "", "\t")
	if err != nil {
		return err
	}
	return errors.Join(replace(results, append(text, '\n')), replace(page, []byte(document(figures, have))))
}

func replace(path string, text []byte) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(next, text, 0o666); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// document is the page.
func document(all []figure, have map[string]result) string {
	var b strings.Builder
	b.WriteString("# Measured\n\n<!-- Made by go run ./bench/all from bench/all/figures.go and results.json; edit those. -->\n\n" +
		"Each figure has the command that gives it, run in the repository's root. `go run ./bench/all` runs them and writes this page; `-only sparse` runs one. " +
		"Where it says *by hand*, a person has written the result down, and may have run the command several times or on other days. " +
		"More figures are beside what they are of: memory, traffic and schedules of layouts in [parallel.md](parallel.md), kernels and libraries on GPUs in [cuda.md](cuda.md), " +
		"errors of half precision in [rationale.md](rationale.md#precision).\n")
	group := ""
	for _, f := range all {
		if f.group != group {
			group = f.group
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s:\n\n```sh\n%s\n```\n\n", f.name, f.what, f.command)
		r, ok := have[f.name]
		if !ok {
			fmt.Fprintf(&b, "Not measured yet.\n")
		} else {
			how := ""
			if r.ByHand {
				how = ", by hand"
			}
			fmt.Fprintf(&b, "**%s** (%s, %s%s)\n", r.Text, r.Date, r.Machine, how)
		}
		if f.beside != "" {
			fmt.Fprintf(&b, "\n%s\n", f.beside)
		}
	}
	return b.String()
}
