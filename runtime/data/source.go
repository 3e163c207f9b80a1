package data

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/internal/mapfile"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// source is one open file: its arrays can be listed and described before any is read.
type source interface {
	Names() []string
	describe(name string) (dtype string, shape []int, err error)
	data(name string) ([]byte, error)
	Close() error
}

type npzSource struct{ *npz.File }

func (s npzSource) describe(name string) (string, []int, error) {
	h, err := s.Header(name)
	if err != nil {
		return "", nil, err
	}
	return h.DType, h.Shape, nil
}

func (s npzSource) data(name string) ([]byte, error) {
	a, err := s.Read(name)
	if err != nil {
		return nil, err
	}
	return a.Data, nil
}

type safeSource struct{ *safetensors.File }

func (s safeSource) describe(name string) (string, []int, error) {
	t, err := s.Tensor(name)
	return t.Elem(), t.Shape, err
}

func (s safeSource) data(name string) ([]byte, error) {
	t, err := s.Tensor(name)
	return t.Data, err
}

// tokenSource is a flat file of tokens.
type tokenSource struct {
	*mapfile.File
	dtype string
}

func openTokens(path, dtype string) (*tokenSource, error) {
	size := kinds[dtype].size
	if dtype != "u8" && dtype != "u16" && dtype != "u32" {
		return nil, fmt.Errorf("%s: tokens must be u8, u16 or u32, not %q", path, dtype)
	}
	m, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	if n := len(m.Data); n%size != 0 {
		m.Close()
		return nil, fmt.Errorf("%s: %d bytes are not a whole number of %s tokens", path, n, dtype)
	}
	return &tokenSource{m, dtype}, nil
}

func (s *tokenSource) count() int64 { return int64(len(s.Data) / kinds[s.dtype].size) }

// extensions says what a file's name means.
var extensions = map[string]string{
	".npz": "npz", ".npy": "npz", ".safetensors": "safetensors",
	".bin": "u16", ".tok": "u16", ".txt": "u8",
}

// expand resolves patterns such as "train-*.npz", keeping the order of the list.
func expand(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil || !strings.ContainsAny(p, "*?[") {
			out = append(out, p)
			continue
		}
		m, err := filepath.Glob(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		if len(m) == 0 {
			return nil, fmt.Errorf("%s: no file matches", p)
		}
		out = append(out, m...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no data file is named")
	}
	return out, nil
}

// files are the open files of a data set, all arrays or all tokens.
type files struct {
	paths  []string
	arrays []source
	tokens []*tokenSource
}

func openFiles(paths []string, tokens string) (*files, error) {
	f := &files{}
	for _, p := range paths {
		kind := tokens
		if kind == "" {
			ok := false
			if kind, ok = extensions[strings.ToLower(filepath.Ext(p))]; !ok {
				f.close()
				return nil, fmt.Errorf("%s: cannot tell what kind of data file this is: known are .npz, .npy, "+
					".safetensors, .bin, .tok and .txt; for tokens under another name say their type with --tokens (u8, u16, u32)", p)
			}
		}
		if err := f.add(p, kind); err != nil {
			f.close()
			return nil, err
		}
	}
	if len(f.arrays) > 0 && len(f.tokens) > 0 {
		f.close()
		return nil, fmt.Errorf("token files and array files cannot be one data set: %q", paths)
	}
	return f, nil
}

func (f *files) add(path, kind string) error {
	f.paths = append(f.paths, path)
	switch kind {
	case "npz":
		s, err := npz.Open(path)
		if err == nil {
			f.arrays = append(f.arrays, npzSource{s})
		}
		return err
	case "safetensors":
		s, err := safetensors.Open(path)
		if err == nil {
			f.arrays = append(f.arrays, safeSource{s})
		}
		return err
	}
	s, err := openTokens(path, kind)
	if err == nil {
		f.tokens = append(f.tokens, s)
	}
	return err
}

func (f *files) close() {
	for _, s := range f.arrays {
		s.Close()
	}
	for _, s := range f.tokens {
		s.Close()
	}
}

// names lists the arrays over all files, in order of appearance.
func (f *files) names() []string {
	if len(f.tokens) > 0 {
		return []string{"x", "y"}
	}
	var out []string
	seen := map[string]bool{}
	for _, s := range f.arrays {
		for _, n := range s.Names() {
			if !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	return out
}
