package passes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"golang.org/x/tools/txtar"
)

// CrashFile is the name of the file that a fault of a pass leaves in the dump folder, or in the current one.
const CrashFile = "gtc-crash.txtar"

// maxCrashConst bounds the bytes of one constant that a crash file carries; larger ones stay hashes.
const maxCrashConst = 256 << 10

// saveCrash writes the module before the pass, the options and the fault, and returns an error that says
// where, or why it could not.
func saveCrash(c *pass.Context, name string, before *ir.Module, what string) error {
	opts, err := json.MarshalIndent(c.Opt, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write a crash file: %w", err)
	}
	path := filepath.Join(c.Opt.DumpDir, CrashFile)
	a := &txtar.Archive{
		Comment: []byte("A fault of gtc in pass " + name + ". Replay: gtc opt -repro " + CrashFile + "\n"),
		Files: []txtar.File{
			{Name: "pass", Data: []byte(name + "\n")},
			{Name: "options.json", Data: append(opts, '\n')},
			{Name: "fault.txt", Data: []byte(what + "\n")},
			{Name: "before.ir", Data: []byte(before.String())},
		},
	}
	for _, t := range bigConsts(before) {
		if len(t.Data) > 0 && len(t.Data) <= maxCrashConst {
			text := base64.StdEncoding.EncodeToString(t.Data) + "\n"
			a.Files = append(a.Files, txtar.File{Name: abi.Constant.Of(t.Hash()), Data: []byte(text)})
		}
	}
	if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
		return fmt.Errorf("cannot write a crash file: %w", err)
	}
	return fmt.Errorf("the module before the pass is in %s; replay with: gtc opt -repro %s", path, path)
}

// bigConsts lists, once each, the tensor attributes that the text form shows only by hash.
func bigConsts(m *ir.Module) []*ir.Tensor {
	var out []*ir.Tensor
	seen := map[string]bool{}
	for _, f := range m.Funcs {
		for _, op := range f.Ops {
			for _, t := range op.Tensors() {
				if t.Type.Elems() > 64 && !seen[t.Hash()] {
					seen[t.Hash()] = true
					out = append(out, t)
				}
			}
		}
	}
	return out
}

// LoadCrash reads a crash file back: the context as it was before the faulty pass, and the pass's name.
// Constants too large for the file come back without data.
func LoadCrash(data []byte) (*pass.Context, string, error) {
	files := map[string][]byte{}
	for _, f := range txtar.Parse(data).Files {
		files[f.Name] = f.Data
	}
	name := strings.TrimSpace(string(files["pass"]))
	if name == "" || files["before.ir"] == nil {
		return nil, "", fmt.Errorf("not a crash file of gtc: it has no pass or no before.ir")
	}
	m, err := ir.Parse(string(files["before.ir"]))
	if err != nil {
		return nil, "", fmt.Errorf("before.ir: %w", err)
	}
	c := &pass.Context{Module: m, Opt: &pass.Options{}}
	if err := json.Unmarshal(files["options.json"], c.Opt); err != nil {
		return nil, "", fmt.Errorf("options.json: %w", err)
	}
	for _, t := range bigConsts(m) {
		text, ok := files[abi.Constant.Of(t.Hash())]
		if !ok {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
		if err != nil || len(raw) != t.Type.Bytes() {
			return nil, "", fmt.Errorf("%s: not %d bytes of base64", t.Hash(), t.Type.Bytes())
		}
		t.Data = raw
	}
	return c, name, nil
}

// Replay runs the one pass that a crash file names on the module it holds.
func Replay(data []byte, table []pass.Pass) (*pass.Context, error) {
	c, name, err := LoadCrash(data)
	if err != nil {
		return nil, err
	}
	for _, p := range table {
		if p.Name == name {
			p.Needs = 0 // the facts held when the file was written
			c.Opt.Disable, c.Opt.StopAfter = nil, ""
			return c, Run(c, []pass.Pass{p})
		}
	}
	return nil, fmt.Errorf("the crash file names pass %q, which this gtc does not have", name)
}
