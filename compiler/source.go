package compiler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Names within a compiled folder of what it was compiled from: the model's file, external data beside it under
// their relative names, and the options.
const (
	sourceDir     = "source"
	sourceOptions = "options.json"
)

// source is options.json: what to compile the kept model with to get the same again.
type source struct {
	Model  string       `json:"model"` // file name in the folder
	Import onnx.Options `json:"import"`
	Pass   pass.Options `json:"pass"`
}

// keepSource copies the model and its external data into o.Out. They are copies, not links: exporters overwrite
// files in place.
func keepSource(o *Options, m *onnx.Model) error {
	dir := filepath.Join(o.Out, sourceDir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	s := source{Model: filepath.Base(o.Model), Import: o.Import, Pass: o.Pass}
	s.Import.Fixed, s.Pass.DumpDir, s.Pass.StopAfter = nil, "", ""
	text, err := json.MarshalIndent(&s, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, sourceOptions), append(text, '\n'), 0o666); err != nil {
		return err
	}
	if err := keepExternal(dir, filepath.Dir(o.Model), externalFiles(m, o.Import.Abstract), s.Model); err != nil {
		return err
	}
	in, err := os.Open(o.Model) // the user named it: it may be a link to anywhere
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(dir, s.Model))
	if err != nil {
		return err
	}
	return errors.Join(copyTo(out, in), out.Close())
}

// keepExternal copies files of external data, whose names come from the model: neither reading nor writing leaves the two
// folders, also not through links (os.Root), and none may take the place of the options or the model.
func keepExternal(to, from string, names []string, model string) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer target.Close()
	for _, name := range names {
		if clean := filepath.Clean(name); strings.EqualFold(clean, sourceOptions) || strings.EqualFold(clean, model) {
			return Input(fmt.Errorf("the model's external data is called %q, and the compiled folder keeps another file by that name: rename it", name))
		}
		if err := copyFile(target, source, name); err != nil {
			return err
		}
	}
	return nil
}

// externalFiles lists the files that the model's initializers are stored in, relative to its folder. The importer
// has checked that they lie inside. Without those that are not there, when they need not be.
func externalFiles(m *onnx.Model, abstract bool) []string {
	var names []string
	seen := map[string]bool{}
	for _, t := range m.Proto.Graph.Initializer {
		if t.GetDataLocation() != onnxpb.TensorProto_EXTERNAL {
			continue
		}
		for _, e := range t.ExternalData {
			if name := e.GetValue(); e.GetKey() == "location" && !seen[name] && filepath.IsLocal(name) {
				seen[name] = true
				if abstract && !exists(filepath.Join(m.Dir, name)) {
					continue
				}
				names = append(names, name)
			}
		}
	}
	return names
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func copyFile(to, from *os.Root, name string) error {
	if st, err := from.Stat(name); err != nil {
		return err
	} else if !st.Mode().IsRegular() {
		return Input(fmt.Errorf("%q is not a regular file", name))
	}
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := to.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	out, err := to.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(copyTo(out, in), out.Close())
}

func copyTo(out io.Writer, in io.Reader) error {
	_, err := io.Copy(out, in)
	return err
}

// KeptSource reads back what keepSource left in the folder dir: the options to compile the copy of the model again.
func KeptSource(dir string) (*Options, error) {
	in := filepath.Join(dir, sourceDir)
	text, err := os.ReadFile(filepath.Join(in, sourceOptions))
	if err != nil {
		return nil, Input(fmt.Errorf("the compiled folder was made without its model: %w", err))
	}
	var s source
	file := filepath.Join(in, sourceOptions)
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, Input(fmt.Errorf("%s is damaged: %w", file, err))
	}
	if !filepath.IsLocal(s.Model) {
		return nil, Input(fmt.Errorf("%s is damaged: its model, %q, is not a file in the compiled folder", file, s.Model))
	}
	var older struct{ Import struct{ LoRA pass.LoRA } } // where folders kept it before adapters were a pass's
	if err := json.Unmarshal(text, &older); err == nil && s.Pass.LoRA.Rank == 0 {
		s.Pass.LoRA = older.Import.LoRA
	}
	return &Options{Model: filepath.Join(in, s.Model), Import: s.Import, Pass: s.Pass, Out: dir}, nil
}
