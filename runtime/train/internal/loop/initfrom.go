package loop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// weightSource is what --init-from reads: a checkpoint or a file of weights.
type weightSource interface {
	names() []string
	// look is the type and the dims of a whole tensor there; false when there is none of that name.
	look(name string) (dtype string, shape []int, ok bool)
	// read gives this rank's part of t, in the dims of the program.
	read(s *session, t *abi.Tensor, into []byte) error
	where() string
	close()
}

// initFrom begins with the weights that --init-from names: parameters and buffers, nothing of the optimizer and its steps, nor
// of the place in the data.
func (s *session) initFrom() error {
	path := s.cfg.initFrom
	if path == "" {
		return nil
	}
	err := s.takeWeights(path)
	if err != nil {
		err = ranks.Usagef("--init-from: %w", err)
	}
	return s.AllOK("reading the weights of --init-from", err)
}

func (s *session) takeWeights(path string) error {
	from, err := openWeights(path)
	if err != nil {
		return err
	}
	defer from.close()
	if err := s.fits(from); err != nil {
		return err
	}
	for i := range s.Plan.Prog.Tensors {
		t := &s.Plan.Prog.Tensors[i]
		if !ofModel(t) {
			continue
		}
		if t.Frozen {
			err = s.sameFrozen(from, t)
		} else {
			err = s.m.Fill(t, func(b []byte) error { return from.read(s, t, b) })
		}
		if err != nil {
			return fmt.Errorf("%s: %w", from.where(), err)
		}
	}
	s.absent = nil
	s.rep.Note("starting from the weights of %s", from.where())
	return nil
}

// ofModel reports whether t is a parameter or a buffer of the model.
func ofModel(t *abi.Tensor) bool { return t.Role == abi.RoleParam || t.Role == abi.RoleBuffer }

// fits finds what the source lacks, or has in another shape, in all stages of the model, so that every rank finds the same.
func (s *session) fits(from weightSource) error {
	var wrong []string
	used := map[string]bool{}
	for _, p := range s.Plan.StagePrograms() {
		for i := range p.Tensors {
			t := &p.Tensors[i]
			if !ofModel(t) || used[t.Name] {
				continue
			}
			used[t.Name] = true
			dtype, shape, ok := from.look(t.Name)
			want := s.Plan.Kept(t)
			switch {
			case !ok && t.Frozen:
			case !ok:
				wrong = append(wrong, fmt.Sprintf("%q is missing", t.Name))
			case dtype != stored(t.DType) || !slices.Equal(shape, want):
				wrong = append(wrong, fmt.Sprintf("%q is %s%v there, but %s%v in this program", t.Name, dtype, shape, t.DType, want))
			}
		}
	}
	var more []string
	for _, name := range from.names() {
		if !used[name] && !abi.OfRun(name) {
			more = append(more, name)
		}
	}
	slices.Sort(more)
	if len(wrong) > 0 {
		text := fmt.Sprintf("%s does not fit: %s", from.where(), several(wrong, "; "))
		if len(more) > 0 {
			text += "; it has tensors that this program does not have: " + several(more, ", ")
		}
		return errors.New(text)
	}
	if len(more) > 0 {
		s.rep.Note("%s has tensors that this program does not have: %s", from.where(), several(more, ", "))
	}
	return nil
}

// several joins the first few of a list, and says how many more there are.
func several(list []string, by string) string {
	const most = 8
	if len(list) <= most {
		return strings.Join(list, by)
	}
	return strings.Join(list[:most], by) + fmt.Sprintf("%sand %d more", by, len(list)-most)
}

// sameFrozen makes sure that a weight which this program keeps as it was compiled is the same in the source: checkpoints leave
// it out, so that another one would be lost with the next resume.
func (s *session) sameFrozen(from weightSource, t *abi.Tensor) error {
	if _, _, ok := from.look(t.Name); !ok {
		return nil
	}
	there := make([]byte, t.Bytes)
	if err := from.read(s, t, there); err != nil {
		return err
	}
	here, err := s.m.Contents(t)
	if err != nil {
		return err
	}
	if !bytes.Equal(here, there) {
		return fmt.Errorf("%q is frozen in this program, which keeps the values that it was compiled with, but has other values there: compile a model that has those (gtc export writes it)", t.Name)
	}
	return nil
}

// openWeights opens a .safetensors file, a step's folder, a folder of steps, or that of a compiled model.
func openWeights(path string) (weightSource, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, ".onnx") {
		return nil, fmt.Errorf("%s is a model, whose weights gtc compile puts into the program: --init-from needs a folder of checkpoints or a .safetensors file", path)
	}
	if !st.IsDir() {
		f, err := safetensors.Open(path)
		if err != nil {
			return nil, fmt.Errorf("it must be a folder of checkpoints or a .safetensors file: %w", err)
		}
		return &weightFile{f}, nil
	}
	if _, err := os.Stat(filepath.Join(path, weightsFile)); err == nil { // a compiled folder
		path = filepath.Join(path, "checkpoints")
	}
	c, err := ckpt.Open(path)
	if err != nil {
		return nil, err
	}
	return &weightCheckpoint{c}, nil
}

// weightFile is a file of weights, such as gtc export writes.
type weightFile struct{ f *safetensors.File }

func (w *weightFile) names() []string { return w.f.Names() }
func (w *weightFile) where() string   { return w.f.Path() }
func (w *weightFile) close()          { w.f.Close() }

func (w *weightFile) look(name string) (string, []int, bool) {
	t, err := w.f.Tensor(name)
	return t.Elem(), t.Shape, err == nil
}

func (w *weightFile) read(s *session, t *abi.Tensor, into []byte) error {
	x, err := w.f.Tensor(t.Name)
	if err != nil {
		return err
	}
	from := program.Region{Data: x.Data, Dims: s.Plan.Whole(t), At: s.Plan.Start(t, s.Plan.Rank, 0)}
	program.CopyBox(program.Region{Data: into, Dims: t.Dims}, from, t.Dims, program.ElemSize(t.DType))
	return nil
}

// weightCheckpoint is a checkpoint of which only the weights count.
type weightCheckpoint struct{ c *ckpt.Checkpoint }

func (w *weightCheckpoint) names() []string { return w.c.Names() }
func (w *weightCheckpoint) where() string   { return w.c.Dir() }
func (w *weightCheckpoint) close()          { w.c.Close() }

func (w *weightCheckpoint) look(name string) (string, []int, bool) {
	t, err := w.c.Tensor(name)
	return t.DType, t.Shape, err == nil
}

func (w *weightCheckpoint) read(s *session, t *abi.Tensor, into []byte) error {
	return s.readEntry(w.c, t, 0, false, into)
}
