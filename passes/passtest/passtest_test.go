package passtest

import (
	"slices"
	"strings"
	"testing"
)

// TestOptions: names of fields with dots, in any case, of each type; what is no field, or no number, is an error that names it.
func TestOptions(t *testing.T) {
	o, err := Options(map[string]string{"dp": "2", "optimizer.LR": "0.5", "gradcomm.fraction": "0.25", "syncbn": "true", "disable": "a,b", "loss": "mse", "changes": "yes"})
	if err != nil || o.DP != 2 || o.Optimizer.LR != 0.5 || o.GradComm.Fraction != 0.25 || !o.SyncBN || !slices.Equal(o.Disable, []string{"a", "b"}) || o.Loss != "mse" || o.IgnoreIndex != -100 {
		t.Errorf("%+v, %v", o, err)
	}
	for key, want := range map[string]string{"dpp=2": `no field "dpp"`, "optimizer.x=1": `no field "x"`, "dp=two": "dp=two", "optimizer=sgd": "its type is"} {
		k, v, _ := strings.Cut(key, "=")
		if _, err := Options(map[string]string{k: v}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := Context("p", "func @f(%x: f32[2]) {\n  return a=%y\n}\n", nil); err == nil {
		t.Error("a value that is not there is no error")
	}
}
