package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// byNVRTC compiles in this process.
type byNVRTC struct{ *nvrtc.Library }

func (c byNVRTC) name() string { return fmt.Sprintf("NVRTC %d.%d", c.Major, c.Minor) }

// driver: within a major version of CUDA, older drivers load what newer compilers made.
func (c byNVRTC) driver() int { return c.Major * 1000 }

func (c byNVRTC) compile(_ context.Context, u unit, arch string) ([]byte, string, error) {
	image, log, err := c.Compile(nvrtc.Source{Name: u.name, Text: u.text, Headers: u.headers}, arch, append(u.options, "--ptxas-options=-v")...)
	var e *nvrtc.Error
	if errors.As(err, &e) {
		return nil, log, errors.New(e.What + "\n" + excerpts(u, e.Log))
	}
	return image, log, err
}

// byNVCC runs a toolkit's compiler.
type byNVCC struct{ path, version string }

func (c byNVCC) name() string { return c.version }

func (c byNVCC) driver() int {
	var major int
	fmt.Sscanf(c.version, "nvcc %d.", &major)
	return major * 1000
}

// findNVCC looks for nvcc in a toolkit's folder, or where the usual variables and PATH have it; nil when there is none.
func findNVCC(cudaPath string, getenv func(string) string) compiler {
	var paths []string
	for _, dir := range []string{cudaPath, getenv("CUDA_HOME"), getenv("CUDA_PATH")} {
		if dir != "" {
			if whole, err := filepath.Abs(dir); err == nil { // it runs in a folder of its own
				dir = whole
			}
			paths = append(paths, filepath.Join(dir, "bin", "nvcc"))
		}
	}
	if cudaPath != "" {
		paths = paths[:1]
	} else {
		paths = append(paths, "nvcc", "/usr/local/cuda/bin/nvcc")
	}
	for _, p := range paths {
		out, err := exec.Command(p, "--version").Output()
		if err != nil {
			continue
		}
		version := "nvcc"
		for _, line := range strings.Split(string(out), "\n") {
			if _, v, ok := strings.Cut(line, "release "); ok {
				version = "nvcc " + v
			}
		}
		return byNVCC{p, version}
	}
	return nil
}

func (c byNVCC) compile(ctx context.Context, u unit, arch string) ([]byte, string, error) {
	dir, err := os.MkdirTemp("", "gtc-nvcc-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	for _, h := range u.headers {
		if err := os.WriteFile(filepath.Join(dir, h.Name), []byte(h.Text), 0o666); err != nil {
			return nil, "", err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, u.name), []byte(u.text), 0o666); err != nil {
		return nil, "", err
	}
	form := "-cubin"
	if strings.HasPrefix(arch, "compute_") {
		form = "-ptx"
	}
	args := append([]string{form, "-arch=" + arch, "--ptxas-options=-v", "-O3", "-I", ".", "-o", "image", u.name}, u.options...)
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir = dir
	log, err := cmd.CombinedOutput()
	if err != nil {
		return nil, string(log), fmt.Errorf("%w\n%s", err, excerpts(u, strings.TrimSpace(string(log))))
	}
	image, err := os.ReadFile(filepath.Join(dir, "image"))
	return image, string(log), err
}
