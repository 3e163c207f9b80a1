package data

import (
	"context"
	"io"
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// Sums over the MNIST subset, as NumPy gives them.
func TestMNIST(t *testing.T) {
	norm, err := ParseTransform("scale=1/255,mean=0.1307,std=0.3081")
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open([]string{fixtures.Path(t, "data/mnist_train.npz")},
		[]Input{{Name: "x", DType: "f32", Shape: []int{1, 28, 28}}, {Name: "target", DType: "i64", Target: true, Hi: 10}},
		Options{Transforms: map[string]Transform{"x": norm}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l, err := d.Eval(64, 0, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	digits, pixels := [10]int{}, 0.0
	for {
		b, err := l.Next(context.Background())
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, label := range ints(t, b.Inputs[1])[:b.Valid] {
			digits[label]++
			for _, v := range floats(b.Inputs[0][i*784*4 : (i+1)*784*4]) {
				pixels += math.Round((float64(v)*0.3081 + 0.1307) * 255)
			}
		}
		b.Release()
	}
	if want := [10]int{908, 1022, 887, 929, 888, 774, 909, 957, 846, 880}; digits != want {
		t.Errorf("digits %v, want %v", digits, want)
	}
	if pixels != 235725904 {
		t.Errorf("the pixels sum to %.0f", pixels)
	}
	sum := 0.0
	for _, v := range floats(row(t, d, 0, 123)) {
		sum += float64(v)
	}
	if math.Abs(sum-51.68243058339851) > 1e-3 {
		t.Errorf("image 123 sums to %v", sum)
	}
}
