package main

import (
	"bytes"
	"go/format"
	"path/filepath"
	"regexp"
)

// renames are identifiers and words of generated folders that have been given other names: new stands for what matches old, so that
// a commit from before compares with one from after. What does not differ by these alone still differs.
var renames = []struct {
	old *regexp.Regexp
	new string
}{
	{regexp.MustCompile(`\bGemmEnd\b`), "GemmEpilogue"},
	{regexp.MustCompile(`\bmatmul_end\b`), "matmul_epilogue"},
	{regexp.MustCompile(`C\[i\] = end\(alpha`), "C[i] = epilogue(alpha"},
	{regexp.MustCompile(`_many(_|\b)`), "_multitensor${1}"},
	{regexp.MustCompile(`\.again\b`), ".remat"},
	{regexp.MustCompile(`_[0-9a-f]{8}\b`), "_text"}, // in the name of a kernel: the hash of its text, which is compared itself
	{regexp.MustCompile(`"meetings":`), `"cross_sample":`},
	{regexp.MustCompile(`"lone":`), `"single_value_statistics":`},
	{regexp.MustCompile(`"own":`), `"per_rank":`},
	{regexp.MustCompile(`"version": ?1,`), `"version": 2,`},
	{regexp.MustCompile(`"why": "(\\.|[^"\\])*"`), `"why": ""`}, // prose for readers of gtc explain
}

// renamed is a generated file by the names of today, its columns as gofmt has them then.
func renamed(name string, text []byte) []byte {
	for _, r := range renames {
		text = r.old.ReplaceAll(text, []byte(r.new))
	}
	if filepath.Ext(name) == ".go" {
		if tidy, err := format.Source(text); err == nil {
			return tidy
		}
	}
	return text
}

// equal reports whether two versions of a file differ by renamed words at most.
func equal(name string, a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(renamed(name, a), renamed(name, b))
}
