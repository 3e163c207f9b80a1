// Package folder reads compiled folders back: their plan, their programs, the model that they keep, and whether all of it is as
// gtc wrote it.
package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Folder is a compiled folder that is read back.
type Folder struct {
	Dir      string        // its path, as given
	Manifest *abi.Manifest // what its gtc.json says
}

// Open reads gtc.json of a compiled folder. The error says what is wrong with the folder.
func Open(dir string) (*Folder, error) {
	path := filepath.Join(dir, build.Marker)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, compiler.Input(fmt.Errorf("%s is not a folder made by gtc compile: it has no %s", dir, build.Marker))
	}
	if err != nil {
		return nil, compiler.Input(err)
	}
	f := &Folder{Dir: dir, Manifest: &abi.Manifest{}}
	if err := json.Unmarshal(text, f.Manifest); err != nil {
		return nil, compiler.Input(fmt.Errorf("%s is damaged: %w", path, err))
	}
	if f.Manifest.Version != abi.Version {
		return nil, compiler.Input(fmt.Errorf("%s has format version %d, and this gtc reads version %d: compile the model again", path, f.Manifest.Version, abi.Version))
	}
	return f, nil
}

// Binaries lists the program of each rank. The error says that they are not built.
func (f *Folder) Binaries() ([]string, error) {
	ranks := filepath.Join(f.Dir, "bin", build.Command) // where there can be no links: launchers tell a rank its number
	_, notBuilt := os.Stat(ranks)
	var bins []string
	for r := range max(1, f.Manifest.Ranks) {
		bin := build.RankBinary(f.Dir, r)
		if _, err := os.Stat(bin); err != nil {
			if notBuilt != nil {
				return nil, compiler.Input(fmt.Errorf("%s is not built: compile without --no-build, or run go build -o bin/ ./cmd/... in %s", bin, f.Dir))
			}
			bin = ranks
		}
		bins = append(bins, bin)
	}
	return bins, nil
}

// Options are those that the folder was compiled with, on the copy of the model that it keeps.
func (f *Folder) Options() (*compiler.Options, error) {
	o, err := compiler.KeptSource(f.Dir)
	if err != nil {
		return nil, err
	}
	o.Flags = f.Manifest.Options
	return o, nil
}
