package cuda

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gtc-compiler/gtc/kernels/cuda/standin"
	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// driverFile is the stand-in's file. Without a C++ compiler the test is skipped.
func driverFile(t testing.TB) string {
	t.Helper()
	if _, err := standin.Compiler(); err != nil {
		t.Skip(err)
	}
	path, err := standin.Driver(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// useStandIn makes the driver of this process the stand-in.
func useStandIn(t *testing.T) {
	t.Helper()
	os.Setenv(driver.Variable, driverFile(t)) // it is opened once for all tests
	os.Setenv("GTC_STANDIN_ORDER", "lazy")
	os.Setenv("GTC_STANDIN_CLOCK", "work") // the library's ways are faster than kernels
}

// standIns compile the stand-in for one of NVIDIA's libraries, of a file of testdata, once for the process.
var standIns = map[string]func() (string, error){"cublaslt.cc": standInOf("cublaslt.cc"), "cudnn.cc": standInOf("cudnn.cc")}

func standInOf(source string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		cxx, err := standin.Compiler()
		if err != nil {
			return "", err
		}
		file := filepath.Join(built, source+".so")
		if out, err := exec.Command(cxx, "-std=c++17", "-O1", "-shared", "-fPIC", "-o", file, filepath.Join("testdata", source), "-ldl").CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		return file, nil
	})
}

// useLibrary has the environment name the stand-in compiled of a file of testdata.
func useLibrary(t *testing.T, variable, source string) {
	t.Helper()
	if _, err := standin.Compiler(); err != nil {
		t.Skip(err)
	}
	file, err := standIns[source]()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, file)
}

// built is a folder of this process.
var built string

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "gtc-device-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}
