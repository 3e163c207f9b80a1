package folder

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/internal/proof"
	"github.com/gtc-compiler/gtc/kernels/cpu"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Verification is what Verify found. Its JSON names are public.
type Verification struct {
	OK     bool          `json:"ok"`              // no faults
	Folder string        `json:"folder"`          // its path, as given
	Faults []string      `json:"faults"`          // what is wrong, a sentence each; empty when OK
	Proof  *proof.Report `json:"proof,omitempty"` // what was proven, of a folder whose ranks fit together
}

// Files of a program's package that are not code made for it: the plan, and the header that all share.
const (
	planFile   = "plan.json"
	headerFile = "gtc_math.h"
)

// Verify repeats on a compiled folder what was proven when it was made: that its sources are those that gtc wrote for its
// plan, and that the ranks of the plan fit together. Faults are in the result; an error means that the folder cannot be
// read.
func (f *Folder) Verify() (*Verification, error) {
	v := &Verification{Folder: f.Dir, Faults: []string{}}
	if len(f.Manifest.Programs) == 0 || len(f.Manifest.RankProgram) == 0 {
		return nil, compiler.Input(fmt.Errorf("%s has no programs", f.Dir))
	}
	var packages []string
	for _, p := range f.Manifest.Programs {
		if !slices.Contains(packages, p.Package) {
			packages = append(packages, p.Package)
		}
	}
	for _, name := range packages {
		faults, err := f.verifyPackage(name)
		if err != nil {
			return nil, err
		}
		v.Faults = append(v.Faults, faults...)
	}
	report, err := proof.Check(f.Manifest)
	if err != nil {
		v.Faults = append(v.Faults, "the ranks do not fit together: "+err.Error())
	}
	v.Proof, v.OK = report, len(v.Faults) == 0
	return v, nil
}

// verifyPackage compares one package with the plan.
func (f *Folder) verifyPackage(name string) ([]string, error) {
	if !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
		return nil, compiler.Input(fmt.Errorf("%s names a package %q", build.Marker, name))
	}
	dir := filepath.Join(f.Dir, name)
	files, err := readFiles(dir)
	if err != nil {
		return nil, compiler.Input(err)
	}
	plan, err := os.ReadFile(filepath.Join(f.Dir, build.Marker))
	if err != nil {
		return nil, compiler.Input(err)
	}
	var faults []string
	if !bytes.Equal(files[planFile], plan) {
		faults = append(faults, fmt.Sprintf("%s/%s, which the programs carry, is not %s", name, planFile, build.Marker))
	}
	on, err := pass.TargetOf(f.Manifest.Target)
	if err != nil {
		return nil, compiler.Input(fmt.Errorf("%s: target %q is unknown", build.Marker, f.Manifest.Target))
	}
	if !on.Traits().Device && string(files[headerFile]) != cpu.MathHeader {
		faults = append(faults, fmt.Sprintf("%s/%s is not that of this gtc", name, headerFile))
	}
	delete(files, planFile)
	delete(files, headerFile)
	changed := f.changed(name, files)
	faults = append(faults, changed...)
	code, err := readCode(name, files)
	if err != nil {
		return append(faults, fmt.Sprintf("%s is not a Go package: %v", name, err)), nil
	}
	var programs []int
	for i := range f.Manifest.Programs {
		if f.Manifest.Programs[i].Package == name {
			programs = append(programs, i)
		}
	}
	differ := 0
	for _, i := range programs {
		if fault := code.compare(i, &f.Manifest.Programs[i]); fault != "" {
			faults = append(faults, fault)
			differ++
		}
	}
	if differ+len(changed) == 0 && !f.hashed(files) {
		faults = append(faults, fmt.Sprintf("%s was changed after gtc wrote it: what it and %s hold does not have the plan's hash", name, build.Marker))
	}
	return faults, nil
}

// changed names the sources of a package that are not those of the plan's hashes. A plan of an older gtc has none: then
// only the hash over all of them tells.
func (f *Folder) changed(pkg string, files map[string][]byte) []string {
	sums := f.Manifest.Files
	if len(sums) == 0 {
		return nil
	}
	var faults []string
	for path := range sums {
		if dir, name, _ := strings.Cut(path, "/"); dir == pkg && files[name] == nil {
			faults = append(faults, path+" is missing")
		}
	}
	for name, text := range files {
		switch path := pkg + "/" + name; sums[path] {
		case compiler.SourceSum(text):
		case "":
			faults = append(faults, path+" is not of this plan: gtc did not write it")
		default:
			faults = append(faults, path+" was changed after gtc wrote it")
		}
	}
	slices.Sort(faults)
	return faults
}

// hashed reports whether the package and the plan are those of the plan's hashes.
func (f *Folder) hashed(files map[string][]byte) bool {
	m := f.Manifest
	each := slices.Max(m.RankProgram) + 1
	if each < 1 {
		return false
	}
	for first := 0; first < len(m.Programs); first += each {
		list := m.Programs[first:min(first+each, len(m.Programs))]
		want := compiler.ProgramsHash(files, m, list)
		if slices.ContainsFunc(list, func(p abi.Program) bool { return p.Hash != want }) {
			return false
		}
	}
	return true
}

// readFiles reads the regular files of a folder, by name.
func readFiles(dir string) (map[string][]byte, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the folder has no %s", filepath.Base(dir))
	}
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range list {
		if !e.Type().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", filepath.Join(dir, e.Name()))
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}
