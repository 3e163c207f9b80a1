package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPython runs the tests of python/gtc in the virtual environment that tests/torch/run.sh makes. They need PyTorch and
// minutes, so they wait for GTC_LONG=1.
func TestPython(t *testing.T) {
	venv := os.Getenv("GTC_VENV")
	if venv == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("python/gtc is NOT TESTED: %v", err)
		}
		venv = filepath.Join(cache, "gtc", "venv")
	}
	python := filepath.Join(venv, "bin", "python")
	files, err := filepath.Glob(filepath.Join(root, "python", "tests", "test_*.py"))
	switch {
	case err != nil || len(files) == 0:
		t.Fatalf("python/tests holds no tests: %v", err)
	case os.Getenv("GTC_LONG") == "":
		t.Skip("python/gtc is NOT TESTED: GTC_LONG=1 runs its tests, or tests/torch/run.sh python/tests/test_gtc.py")
	case exec.Command(python, "-c", "import torch, onnx, onnxscript").Run() != nil:
		t.Skipf("python/gtc is NOT TESTED: %s has no PyTorch; tests/torch/run.sh python/tests/test_gtc.py installs it and runs the tests", venv)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".py"), func(t *testing.T) {
			cmd := exec.Command(python, filepath.Join("python", "tests", name))
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
