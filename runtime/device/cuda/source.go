package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// compile compiles kernels at the start of a program, for the device that is there. What it made is kept in the user's cache, so
// that it is the first start that takes time, not each.
func compile(text []byte, arch string, log func(string, ...any)) ([]byte, error) {
	library, err := nvrtc.Open(nvrtc.Candidates("", os.Getenv))
	if err != nil {
		return nil, fmt.Errorf("its source cannot be compiled here: %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d.%d %s\n%s", library.Major, library.Minor, arch, text)
	file := kept(hex.EncodeToString(h.Sum(nil)[:20]) + "." + arch)
	if cubin, err := os.ReadFile(file); err == nil && len(cubin) > 0 {
		return cubin, nil
	}
	begin := time.Now()
	cubin, _, err := library.Compile(nvrtc.Source{Name: "kernels.cu", Text: string(text)}, arch, "--std=c++17")
	if err != nil {
		return nil, err
	}
	if log != nil {
		log("the kernels were compiled for %s in %v; gtc compile --arch %s does it once for all machines", arch, time.Since(begin).Round(10*time.Millisecond), arch)
	}
	keep(file, cubin)
	return cubin, nil
}

// kept is the path of a file in the user's cache of kernels, as GTC_CACHE moves it or turns it off; "" for none.
func kept(name string) string {
	dir := os.Getenv("GTC_CACHE")
	if dir == "off" {
		return ""
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(user, "gtc")
	}
	return filepath.Join(dir, "kernels", name)
}

// keep writes a file that others see whole or not at all. One that cannot be written is made again.
func keep(file string, data []byte) {
	if file == "" || os.MkdirAll(filepath.Dir(file), 0o777) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(file), "new-*")
	if err != nil {
		return
	}
	_, err = f.Write(data)
	if e := f.Close(); err != nil || e != nil || os.Rename(f.Name(), file) != nil {
		os.Remove(f.Name())
	}
}
