package nvrtc

import (
	"path/filepath"
	"slices"
	"strings"
)

// Folders of a CUDA toolkit, of the pip packages nvidia-cuda-nvrtc (13) and nvidia-cuda-nvrtc-cu12 below site-packages, and
// of Linux distributions, in which the library may lie.
var (
	toolkitFolders = []string{"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"}
	pipFolders     = []string{"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}
	usualFolders   = []string{"/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda"}
)

// Candidates lists the files in which NVRTC may be, the likeliest first: under cudaPath alone when that is given (a toolkit's
// folder, the one with the library in it, or a Python environment), else where CUDA_HOME and CUDA_PATH say, among the pip
// packages of the Python environment that VIRTUAL_ENV or CONDA_PREFIX names, in the usual folders, and by name, where the
// system's loader finds it (LD_LIBRARY_PATH, ldconfig). getenv is os.Getenv or a test's.
func Candidates(cudaPath string, getenv func(string) string) []string {
	if cudaPath != "" {
		return underToolkit(cudaPath)
	}
	var files []string
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if dir := getenv(name); dir != "" {
			files = append(files, underToolkit(dir)...)
		}
	}
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if dir := getenv(name); dir != "" {
			files = append(files, underPython(dir)...)
		}
	}
	for _, dir := range usualFolders {
		files = append(files, underToolkit(dir)...)
	}
	files = append(files, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
	return dedupe(files)
}

// underToolkit finds the library in a toolkit's folder, or in that folder itself.
func underToolkit(dir string) []string {
	var files []string
	for _, sub := range append(slices.Clone(toolkitFolders), ".") {
		files = append(files, libraries(filepath.Join(dir, sub))...)
	}
	if len(files) == 0 { // a folder with the pip packages, or a whole Python environment
		for _, sub := range pipFolders {
			files = append(files, libraries(filepath.Join(dir, sub))...)
		}
		files = append(files, underPython(dir)...)
	}
	return files
}

// underPython finds the library among the packages of a Python environment.
func underPython(dir string) []string {
	var files []string
	for _, sub := range pipFolders {
		packages, _ := filepath.Glob(filepath.Join(quote(dir), "lib", "python3*", "site-packages", sub))
		for _, p := range packages {
			files = append(files, libraries(p)...)
		}
	}
	return files
}

// libraries lists NVRTC's files in a folder, newest version first. Their paths are absolute: to the loader a path without a
// slash is a name to look up, and what lies beside a library is found by its whole path.
func libraries(dir string) []string {
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	files := matches(dir, "libnvrtc.so*")
	files = slices.DeleteFunc(files, func(f string) bool { return strings.Contains(f, ".alt.") })
	slices.SortFunc(files, func(a, b string) int {
		if len(a) != len(b) { // libnvrtc.so, a link to whatever is installed, last
			return len(b) - len(a)
		}
		return strings.Compare(b, a)
	})
	return files
}

// matches lists the files of a folder whose names have the pattern.
func matches(dir, pattern string) []string {
	files, _ := filepath.Glob(filepath.Join(quote(dir), pattern))
	return files
}

// quote makes a path match itself alone.
func quote(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func dedupe(files []string) []string {
	var out []string
	for _, f := range files {
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}
