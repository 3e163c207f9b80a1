// Command prepare makes the folder that tests/gpu/run.sh works on, on a machine with a GPU and neither network nor Go: the
// kernels of all tests, shared models as built programs, and the models of the benchmark table. Nothing here needs a GPU.
//
//	go run ./tests/gpu/prepare -out FOLDER [-arch sm_90] [-only kernels,models,micro,bench]
//	(copy FOLDER to the machine) FOLDER/run.sh
//
// It needs what .ci/run needs, NVRTC (see docs/cuda.md), and ../shared for the models.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/gtc-compiler/gtc/target/cuda/image"
	"github.com/gtc-compiler/gtc/target/launch"
)

// kit is the folder while it is made.
type kit struct {
	dir, shared string
	archs       []string
	images      *image.Builder
}

func main() {
	out := flag.String("out", "", "`FOLDER` to make")
	arch := flag.String("arch", "sm_80,sm_90", "chips to compile for")
	only := flag.String("only", "kernels,models,micro,bench", "parts to make")
	shared := flag.String("shared", "../shared", "`FOLDER` with models and their references")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	k := &kit{dir: *out, shared: *shared, archs: strings.Split(*arch, ",")}
	if err := k.make(ctx, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
}

func (k *kit) make(ctx context.Context, parts []string) (err error) {
	if k.dir == "" {
		return errors.New("-out FOLDER is missing")
	}
	if k.images, err = image.New(launch.Options{Chips: k.archs, Cache: launch.DefaultCache(os.Getenv)}); err != nil {
		return err
	}
	if why := k.images.Warning(); why != "" {
		return errors.New(why)
	}
	if err := os.MkdirAll(filepath.Join(k.dir, "bin"), 0o777); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(k.dir, "kernels"), 0o777); err != nil {
		return err
	}
	for _, p := range parts {
		make := map[string]func(context.Context) error{"kernels": k.cases, "models": k.models, "micro": k.micro, "bench": k.bench}[p]
		if make == nil {
			return fmt.Errorf("-only %s: the parts are kernels, models, micro and bench", p)
		}
		if err := make(ctx); err != nil {
			return err
		}
	}
	if err := k.link(ctx); err != nil {
		return err
	}
	for _, name := range []string{"run.sh", "rival.py"} {
		text, err := os.ReadFile(filepath.Join("tests", "gpu", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(k.dir, name), text, 0o777); err != nil {
			return err
		}
	}
	return nil
}

// binary builds a command that needs no C library beyond the system's.
func (k *kit) binary(ctx context.Context, name, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(k.dir, "bin", name), pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return nil
}

func (k *kit) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }
