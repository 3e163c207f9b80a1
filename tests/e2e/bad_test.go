package e2e

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// edited writes a changed copy of the MLP's ONNX file and gives its path.
func edited(t *testing.T, name string, change func(m *onnxpb.ModelProto)) string {
	t.Helper()
	data, err := os.ReadFile(mlp)
	if err != nil {
		t.Fatal(err)
	}
	m := &onnxpb.ModelProto{}
	if err := m.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	change(m)
	if data, err = m.Marshal(); err != nil {
		t.Fatal(err)
	}
	return file(t, name, data)
}

// file writes a scratch file.
func file(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// Models and flags that cannot be compiled: exit code 2, a message that names what is wrong, and no folder.
func TestBadModels(t *testing.T) {
	whole, err := os.ReadFile(mlp)
	if err != nil {
		t.Fatal(err)
	}
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "thesis.tex"), []byte("ten years"), 0o666); err != nil {
		t.Fatal(err)
	}
	unknown := func(m *onnxpb.ModelProto) {
		for i, name := range []string{"Frobnicate", "Zonk"} {
			m.Graph.Node[len(m.Graph.Node)-1-i].OpType = &name
		}
	}
	for _, c := range []struct {
		name  string
		model string
		args  []string
		want  []string
	}{
		{"missing", filepath.Join(t.TempDir(), "none.onnx"), nil, []string{"none.onnx", "no such file"}},
		{"truncated", file(t, "half.onnx", whole[:len(whole)/2]), nil, []string{"half.onnx", "truncated"}},
		{"empty", file(t, "empty.onnx", nil), nil, []string{"empty.onnx", "the file is empty"}},
		{"no model", file(t, "text.onnx", []byte("this is not a model at all")), nil, []string{"text.onnx"}},
		{"unknown operators", edited(t, "odd.onnx", unknown), nil, []string{"odd.onnx", "2 nodes use operators", "Frobnicate", "Zonk"}},
		{"no batch", mlp, []string{"--batch", "0"}, []string{"mlp.onnx", "open", "--batch"}},
		{"batch does not divide", mlp, []string{"--batch", "33", "--dp", "2"}, []string{"33", "cannot be divided evenly", "2 ranks"}},
		{"loss", mlp, []string{"--loss", "crossentropy"}, []string{"crossentropy", "cross_entropy"}},
		{"optimizer", mlp, []string{"--optimizer", "adam2"}, []string{"adam2", "adamw"}},
		{"unknown flag", mlp, []string{"--learning-rate", "1"}, []string{"--learning-rate"}},
		{"no name", "", nil, []string{"no model is named"}},
		{"target", mlp, []string{"--target", "gpu"}, []string{`--target must be`, "cpu", `not "gpu"`}},
		{"old chip", mlp, []string{"--target", "cuda", "--arch", "sm_50"}, []string{"--arch sm_50", "sm_80 or later"}},
		{"no chip", mlp, []string{"--target", "cuda", "--arch", "volta"}, []string{`not "volta"`, "--arch", "sm_80"}},
		{"chip of the cpu", mlp, []string{"--arch", "sm_90"}, []string{"--arch", "--target cuda"}},
		{"no toolkit", mlp, []string{"--target", "cuda", "--cuda-path", occupied}, []string{occupied, "neither NVRTC"}},
		{"precision", mlp, []string{"--precision", "fp8"}, []string{`"fp8"`, "bf16"}},
		{"scale of bf16", mlp, []string{"--precision", "bf16", "--loss-scale", "8"}, []string{"--loss-scale needs", "fp16"}},
		{"no scale", mlp, []string{"--precision", "fp16", "--loss-scale", "0"}, []string{`not "0"`, "dynamic"}},
		{"scale that f32 has not", mlp, []string{"--precision", "fp16", "--loss-scale", "1e-300"}, []string{`not "1e-300"`, "dynamic"}},
		{"someone's folder", mlp, []string{"-o", occupied}, []string{occupied, "was not made by gtc", "thesis.tex"}},
		{"a folder below a file", mlp, []string{"-o", filepath.Join(occupied, "thesis.tex", "out")}, []string{"thesis.tex", "not a directory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			args := append([]string{"compile", c.model, "--no-build", "-o", out, "--batch", "32", "--loss", "cross_entropy"}, c.args...)
			code, text := command(context.Background(), ".", nil, gtc(t), args...)
			told(t, code, 2, text, c.want...)
			if _, err := os.Stat(out); err == nil {
				t.Error("a folder was made")
			}
		})
	}
	if b, err := os.ReadFile(filepath.Join(occupied, "thesis.tex")); err != nil || string(b) != "ten years" {
		t.Errorf("someone's file is now %q: %v", b, err)
	}
}

// pictures is a data set of n digits; change may spoil it.
func pictures(t *testing.T, name string, n int, change func(image, label *npz.Array)) string {
	t.Helper()
	image := npz.Array{Name: "image", DType: "u8", Shape: []int{n, 1, 28, 28}, Data: make([]byte, n*784)}
	label := npz.Array{Name: "label", DType: "i64", Shape: []int{n}, Data: make([]byte, n*8)}
	for i := range image.Data {
		image.Data[i] = byte(i * 7)
	}
	for i := range n {
		label.Data[8*i] = byte(i % 10)
	}
	change(&image, &label)
	arrays := slices.DeleteFunc([]npz.Array{image, label}, func(a npz.Array) bool { return a.Name == "" })
	path := filepath.Join(t.TempDir(), name)
	if err := npz.WriteFile(path, arrays); err != nil {
		t.Fatal(err)
	}
	return path
}

// Data that cannot be trained on. What is found before training has exit code 2; what only a kernel can see, 1.
func TestBadData(t *testing.T) {
	dir := compiled(t, one).Dir
	npzBytes, err := os.ReadFile(digits)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		code int
		data string
		want []string
	}{
		{"missing", 2, "no/such.npz", []string{"--data", "no/such.npz"}},
		{"truncated", 2, file(t, "cut.npz", npzBytes[:len(npzBytes)-5000]), []string{"cut.npz"}},
		{"damaged", 2, file(t, "hole.npz", slices.Concat(npzBytes[:9000], make([]byte, 500), npzBytes[9500:])), []string{"hole.npz", "image"}},
		{"float labels", 2, pictures(t, "float.npz", 64, func(_, l *npz.Array) { l.DType = "f64" }),
			[]string{"float.npz", `"label"`, "f64", "never turned into integers"}},
		{"wide images", 2, pictures(t, "wide.npz", 64, func(x, _ *npz.Array) { x.Shape = []int{64, 1, 14, 56} }),
			[]string{"wide.npz", `"image"`, "14", "28"}},
		{"no labels", 2, pictures(t, "nolabel.npz", 64, func(_, l *npz.Array) { l.Name = "" }), []string{"nolabel.npz", "no array", "image"}},
		{"too few labels", 2, pictures(t, "few.npz", 64, func(_, l *npz.Array) { l.Shape, l.Data = []int{60}, l.Data[:480] }),
			[]string{"few.npz", "60", "64"}},
		{"a label out of range", 1, pictures(t, "eleven.npz", 32, func(_, l *npz.Array) { binary.LittleEndian.PutUint64(l.Data[8*5:], 11) }),
			[]string{"step 1", "sample 5 ", `"target"`, "out of range, 11"}},
		{"nothing", 2, pictures(t, "none.npz", 0, func(_, _ *npz.Array) {}), []string{"none.npz", "no samples"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fails(t, dir, c.code, []string{"--data", c.data, "--steps", "3", "--checkpoint-dir", "none"}, c.want...)
		})
	}
}

// Folders and checkpoints that do not fit, or are damaged. Nothing that was there is lost.
func TestBadFolders(t *testing.T) {
	dir := compiled(t, one).Dir
	base := t.TempDir()
	good := filepath.Join(base, "good")
	run(t, dir, 1, "--data", digits, "--steps", "20", "--save-every", "10", "--checkpoint-dir", good)
	args := func(more ...string) []string { return append([]string{"--data", digits, "--steps", "25"}, more...) }

	t.Run("a file where checkpoints should go", func(t *testing.T) {
		fails(t, dir, 2, args("--checkpoint-dir", file(t, "plain", nil)), "plain", "--checkpoint-dir")
	})
	t.Run("no weights", func(t *testing.T) {
		fails(t, dir, 2, args("--dir", t.TempDir(), "--checkpoint-dir", "none"), "weights.safetensors", "--dir")
	})
	t.Run("no such checkpoint", func(t *testing.T) {
		fails(t, dir, 2, args("--resume="+filepath.Join(base, "nowhere"), "--checkpoint-dir", "none"), "nowhere")
	})
	t.Run("another program", func(t *testing.T) {
		other := compiled(t, shakespeare).Dir
		fails(t, other, 2, []string{"--data", plays(t), "--steps", "1", "--resume=" + good, "--checkpoint-dir", "none"}, good)
	})
	t.Run("another batch", func(t *testing.T) {
		s := one
		s.batch = 16
		fails(t, compiled(t, s).Dir, 2, args("--resume="+good, "--checkpoint-dir", "none"), good, "batches of 32", "16")
	})
	t.Run("other data", func(t *testing.T) {
		j := start(t, dir, 1, "--data", unseen, "--steps", "25", "--resume="+good, "--checkpoint-dir", "none")
		told(t, j.code(0, minute), 2, j.text(), good, "9000 samples", "1000")
	})
	t.Run("a damaged checkpoint", func(t *testing.T) {
		bad := filepath.Join(t.TempDir(), "bad")
		if err := os.CopyFS(bad, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		shard := filepath.Join(bad, "step-000020", "shard-00000-of-00001.safetensors")
		b, err := os.ReadFile(shard)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(shard, b, 0o666); err != nil {
			t.Fatal(err)
		}
		older := filepath.Join(bad, "step-000010")
		fails(t, dir, 2, args("--resume", "--checkpoint-dir", bad), shard, "damaged", older, "intact")
		run(t, dir, 1, args("--resume="+older, "--checkpoint-dir", bad)...)
	})
	if k, err := ckpt.Open(good); err != nil || k.Verify() != nil || k.Index().Step != 20 {
		t.Errorf("the good checkpoint suffered: %v", err)
	}
}
