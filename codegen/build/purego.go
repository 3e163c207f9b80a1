package build

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// puregoZip holds the packages of purego that programs for a GPU are linked with, and its licence: the folders that gtc
// writes are complete. A test compares it with the module that go.sum names, and makes it (-update).
//
//go:embed purego.zip
var puregoZip []byte

// What vendor/modules.txt and go.mod say of it.
const (
	puregoPath    = "github.com/ebitengine/purego"
	puregoVersion = "v0.11.3"
	puregoGo      = "1.25.0"
)

// vendorPurego adds purego's source, and gives its part of vendor/modules.txt.
func vendorPurego(files map[string][]byte) (string, error) {
	r, err := zip.NewReader(bytes.NewReader(puregoZip), int64(len(puregoZip)))
	if err != nil {
		return "", fmt.Errorf("BUG: purego.zip: %w", err)
	}
	var packages []string
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(in)
		in.Close()
		if err != nil {
			return "", err
		}
		name := path.Join(puregoPath, f.Name)
		files["vendor/"+name] = text
		if dir := path.Dir(name); strings.HasSuffix(name, ".go") && !slices.Contains(packages, dir) {
			packages = append(packages, dir)
		}
	}
	slices.Sort(packages)
	return fmt.Sprintf("# %s %s\n## explicit; go %s\n%s\n", puregoPath, puregoVersion, puregoGo, strings.Join(packages, "\n")), nil
}
