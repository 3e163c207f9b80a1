package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestPage: the page is what the figures and the results make, and each result is of a figure.
func TestPage(t *testing.T) {
	t.Chdir("../..")
	have, err := read(results)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != document(figures, have) {
		t.Errorf("%s is not what figures.go and results.json make: go run ./bench/all -write", page)
	}
	names := map[string]bool{}
	for _, f := range figures {
		if names[f.name] || f.what == "" || f.command == "" || f.takes == 0 || strings.HasSuffix(f.what, ".") {
			t.Errorf("figure %q is not whole, or there twice", f.name)
		}
		names[f.name] = true
		for _, n := range f.needs {
			if needed[n] == nil {
				t.Errorf("%s needs %q, which nothing looks for", f.name, n)
			}
		}
	}
	for name, r := range have {
		if _, err := time.Parse(time.DateOnly, r.Date); err != nil || !names[name] || r.Text == "" || r.Machine == "" {
			t.Errorf("result %q: %+v is of no figure, or not whole: %v", name, r, err)
		}
	}
}

// TestReadings: figures are found in what their commands print.
func TestReadings(t *testing.T) {
	for name, c := range map[string]struct{ out, want string }{
		"mnist": {"eval at step 282  loss 0.1  accuracy 96.10 %\neval at step 1410  loss 0.07  accuracy 98.30 %\n", "98.30 %"},
		"models": {"    models_test.go:80: out 1.0e-07, loss 2.0e-08, gradients 3.0e-06, curves 0.0e+00\n    models_test.go:80: out 5.0e-08, loss 1.0e-06, gradients 1.0e-07, curves 4.0e-07\n",
			"2 comparisons: outputs within 1e-07, losses 1e-06, gradients 3e-06, curves 4e-07"},
		"step": {"gpt, 6 rounds of 30 steps, 2 threads\n  gtc                  min 31.00  median 31.70  max 33.00 ms a step\n  torch 2.15           min 1.00  median 48.40  max 3.00 ms a step\n" +
			"  torch / gtc          min 1.36  median 1.52  max 1.72\ncnn, 6 rounds of 30 steps, 2 threads\n  torch / gtc          min 2.23  median 2.59  max 3.03\n", "gpt 1.52 (1.36 to 1.72); cnn 2.59 (2.23 to 3.03)"},
		"comm":     {"all_reduce of 67108864 bytes f32 between 2 processes, 7 rounds of 20\n  gtc  min 1 GB/s\n  gtc / mpi          min 2.02  median 2.14  max 2.25\n", "2 processes 2.14 (2.02 to 2.25)"},
		"families": {"resnet  ok 3e-07\n\n87 files: 76 ok, 4 told\n\n", "87 files: 76 ok, 4 told"},
		"kills":    {"x: killed after 3s\nx: killed after 4s\n", "2 kills, all as they must be"},
		"half":     {`{"event":"end","why":"done","step":300,"loss":2,"loss_bits":"0x1","seconds":3,"step_seconds":0.0123,"arena_bytes":1234,"x":0}`, "0.0123 s a step, arena of 1234 bytes"},
		"large":    {"compiled   1024 ranks, 8 distinct programs\ntime       13.1 s: import and passes 9 s\ngtc        12 s user, 1.0 s system, largest resident set 0.61 GiB\n", "1024 ranks, 8 distinct programs; 13.1 s, 0.61 GiB of memory"},
		"depth":    {"layers     ops  kernels   C bytes    lower    write    ratio   +build    ratio\n     2     300       31     90000     20.0     50.0     1.00   2500.0     1.00\n    12    1500       31     90000    120.0     80.0     2.80   2830.0     1.13\n", "1.13"},
	} {
		i := -1
		for k := range figures {
			if figures[k].name == name {
				i = k
			}
		}
		if got, ok := figures[i].reads.in(c.out); !ok || got != c.want {
			t.Errorf("%s: %q, %t, want %q", name, got, ok, c.want)
		}
		if got, ok := figures[i].reads.in("nothing\n"); ok {
			t.Errorf("%s is read from nothing: %q", name, got)
		}
	}
}

// TestChoose: words select by name, most by time.
func TestChoose(t *testing.T) {
	list := []figure{{name: "mnist", takes: time.Minute}, {name: "mnist-seeds", takes: time.Hour}, {name: "sparse", takes: time.Minute}}
	for _, c := range []struct {
		only string
		most time.Duration
		want string
	}{{"", 0, "mnist mnist-seeds sparse"}, {"sparse", 0, "sparse"}, {"mnist", time.Minute, "mnist"}, {"seeds,sparse", 0, "mnist-seeds sparse"}} {
		var got []string
		for _, f := range choose(list, strings.Split(c.only, ","), c.most) {
			got = append(got, f.name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("-only %q -most %v: %v, want %s", c.only, c.most, got, c.want)
		}
	}
}
