package onnx

import (
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// tiedModel is a table that two products read, through a transpose, and a buffer of integers and one of floats that nothing
// updates; nodes have the names that TorchScript gives them.
func tiedModel(producer string, entries map[string]string) *onnxpb.ModelProto {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_INT64, 2)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 3)},
		Initializer: []*onnxpb.TensorProto{ramp("emb.weight", 0.1, 3, 4), tensorOf("pos", []int64{2}, int64(1), 0),
			ramp("scale", 1, 4), ramp("mid.proj.weight", 0.1, 4, 4), ramp("mid.proj.bias", 0.1, 4)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Gather", "/emb/Gather", list("emb.weight", "x"), list("e")),
			nodeOf("Gather", "/Gather", list("e", "pos"), list("p"), "axis", int64(0)),
			nodeOf("Mul", "/Mul", list("p", "scale"), list("s")),
			nodeOf("Gemm", "/mid/proj/Gemm", list("s", "mid.proj.weight", "mid.proj.bias"), list("a"), "transB", int64(1)),
			nodeOf("Gemm", "/mid/proj_1/Gemm", list("a", "mid.proj.weight", "mid.proj.bias"), list("b"), "transB", int64(1)),
			nodeOf("Gemm", "/last/Gemm", list("b", "mid.proj.weight", "mid.proj.bias"), list("c"), "transB", int64(1)),
			nodeOf("Transpose", "/head/Transpose", list("emb.weight"), list("t"), "perm", []int64{1, 0}),
			nodeOf("MatMul", "/head/MatMul", list("c", "t"), list("y")),
		},
	})
	m.ProducerName = ptr(producer)
	for k, v := range entries {
		m.MetadataProps = append(m.MetadataProps, &onnxpb.StringStringEntryProto{Key: ptr(k), Value: ptr(v)})
	}
	return m
}

// An exported state dict has each name that the module's has, as far as the file tells: tied ones, buffers that nothing updates.
func TestBeside(t *testing.T) {
	signature := "p_a: PARAMETER target='emb.weight'\np_b: PARAMETER target='head.weight'\np_c: PARAMETER target='mid.proj.weight'\n" +
		"p_d: PARAMETER target='mid.proj.bias'\nb_p: BUFFER target='pos' persistent=True\nb_s: BUFFER target='scale' persistent=False\n" +
		"b_o: BUFFER target='other' persistent=True\nb_n: BUFFER target='bn.num_batches_tracked' persistent=True\n"
	record := map[string]string{model.KeyParameters: `["emb.weight", "mid.proj.weight", "mid.proj.bias"]`, model.KeyBuffers: `["pos", "scale"]`,
		model.KeyTied: `{"head.weight": "emb.weight", "last.weight": "mid.proj.weight"}`, model.KeyUnused: `["idle.weight", "idle.buffer"]`}
	with := func(key, value string) map[string]string {
		out := map[string]string{key: value}
		for k, v := range record {
			out[k] = v
		}
		return out
	}
	for _, c := range []struct {
		name, producer string
		entries        map[string]string
		opts           Options
		want, absent   string // beside what is trained; what the file tells that it lacks
	}{
		{"record", "pytorch", with(model.KeyTransient, `["pos"]`), Options{}, "head.weight=emb.weight last.weight=mid.proj.weight scale", "idle.buffer idle.weight"},
		{"record of an older version", "pytorch", record, Options{}, "head.weight=emb.weight last.weight=mid.proj.weight", "idle.buffer idle.weight"},
		{"frozen", "pytorch", with(model.KeyTransient, `[]`), Options{Freeze: []string{"emb*"}}, "head.weight=emb.weight last.weight=mid.proj.weight pos scale", "idle.buffer idle.weight"},
		{"untied", "pytorch", with(model.KeyTransient, `[]`), Options{Untie: []string{"emb*"}}, "last.weight=mid.proj.weight pos scale", "idle.buffer idle.weight"},
		{"dynamo", "pytorch", map[string]string{model.KeySignature: signature}, Options{}, "pos", "other"},
		{"torchscript", "pytorch", nil, Options{}, "head.weight=emb.weight last.bias=mid.proj.bias last.weight=mid.proj.weight pos scale", ""},
		{"another tool", "tf2onnx", nil, Options{}, "", ""},
	} {
		p, err := Parse(encode(tiedModel(c.producer, c.entries)), "", c.opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Import(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		weights := map[string][]byte{} // contents that differ from the file's and from one another's
		for i, q := range p.Parameters() {
			if q.Role == RoleParameter {
				weights[q.Name] = slices.Repeat([]byte{byte(i + 1)}, q.Type.Bytes())
			}
		}
		beside, err := p.Beside(weights)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var got []string
		for _, e := range beside {
			text := e.Name
			for _, q := range p.Parameters() {
				if d := weights[q.Name]; d != nil && slices.Equal(d, e.Data) && q.Type.Equal(e.Type) {
					text += "=" + q.Name
				}
			}
			if len(e.Data) != e.Type.Bytes() {
				t.Errorf("%s: %s has %d bytes of %s", c.name, e.Name, len(e.Data), e.Type)
			}
			if c.name == "frozen" && e.Name == "head.weight" { // as the table is in the file
				if from, err := p.Inits["emb.weight"].Bytes(); err != nil || !slices.Equal(from, e.Data) {
					t.Errorf("frozen: head.weight is not emb.weight (%v)", err)
				}
				text += "=emb.weight"
			}
			got = append(got, text)
		}
		if c.name == "frozen" { // its own name comes with the tied one: nothing else exports it
			got = slices.DeleteFunc(got, func(s string) bool { return s == "emb.weight" })
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: beside the trained tensors\n%q, want\n%q", c.name, text, c.want)
		}
		var all []string
		for _, e := range beside {
			all = append(all, e.Name)
		}
		if got := strings.Join(p.Absent(all), " "); got != c.absent {
			t.Errorf("%s: absent %q, want %q", c.name, got, c.absent)
		}
	}
}

// What gtc.record notes of a file freezes by any name of a tensor, and tells which names are one; a frozen name that the file
// lacks is told.
func TestMarks(t *testing.T) {
	entries := map[string]string{model.KeyModule: `{"version": 1}`, model.KeyFrozen: `["head.weight", "gone.weight"]`, model.KeyTied: `{"emb.weight": "head.weight"}`,
		model.KeyTransient: `["pos"]`, model.KeyLoss: `"mse"`, model.KeyEvaluation: `5`}
	m, err := Parse(encode(tiedModel("pytorch", entries)), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Import(); err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Parameters() {
		want, other := RoleParameter, ""
		switch p.Name {
		case "emb.weight":
			want, other = RoleBuffer, "head.weight"
		case "scale":
			want = RoleConstant
		}
		if p.Role != want || strings.Join(p.Aliases, " ") != other {
			t.Errorf("%s is a %s, also %q; want a %s, also %q", p.Name, p.Role, p.Aliases, want, other)
		}
	}
	warnings := strings.Join(m.Warnings, "\n")
	for _, want := range []string{"no tensor of the frozen parameters gone.weight", model.KeyEvaluation + " in the file's metadata is not a list of names"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning says %q:\n%s", want, warnings)
		}
	}
	if m.DefaultLoss() != "mse" || m.inStateDict("pos") || !m.inStateDict("scale") {
		t.Errorf("loss %q, pos %t, scale %t", m.DefaultLoss(), m.inStateDict("pos"), m.inStateDict("scale"))
	}
}
