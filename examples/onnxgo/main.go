// Command onnxgo loads a model with github.com/owulveryck/onnx-go and trains it with gtc: the small convolutional network
// and the digits of examples/mnist.
//
//	go run ./examples/onnxgo
//
// It prints how many of the test digits the network knows before and after.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxgo"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
	onnx "github.com/owulveryck/onnx-go"
	"gorgonia.org/tensor"
)

const steps, batch = 200, 50

func main() {
	log.SetFlags(0)
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	file, err := os.ReadFile("examples/mnist/cnn.onnx")
	if err != nil {
		return fmt.Errorf("%w: start it in the repository's root", err)
	}
	m, g, err := onnxgo.Load(file)
	if err != nil {
		return err
	}
	defer g.Close()
	images, labels, err := digits("examples/mnist/train.npz", steps*batch)
	if err != nil {
		return err
	}
	test, known, err := digits("examples/mnist/test.npz", 500)
	if err != nil {
		return err
	}
	if err := accuracy(m, g, test, known); err != nil {
		return err
	}
	err = g.Train(context.Background(), &onnxgo.Training{
		Inputs: map[string]tensor.Tensor{"image": images}, Target: labels, Batch: batch, Steps: steps,
		Options: pass.Options{Loss: "cross_entropy", Optimizer: pass.Optimizer{Name: "adamw", LR: 2e-3}},
	})
	if err != nil {
		return err
	}
	return accuracy(m, g, test, known)
}

// digits reads the first n images, 28 by 28 bytes each, and their labels.
func digits(path string, n int) (images, labels tensor.Tensor, err error) {
	f, err := npz.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	image, err := f.Read("image")
	if err != nil {
		return nil, nil, err
	}
	label, err := f.Read("label")
	if err != nil {
		return nil, nil, err
	}
	n = min(n, label.Shape[0])
	classes := make([]int64, n)
	for i := range classes {
		classes[i] = int64(binary.LittleEndian.Uint64(label.Data[8*i:]))
	}
	return tensor.New(tensor.WithShape(n, 1, 28, 28), tensor.WithBacking(image.Data[:n*28*28])), tensor.New(tensor.WithShape(n), tensor.WithBacking(classes)), nil
}

// accuracy runs the model and prints how often the greatest of its ten outputs is the label's.
func accuracy(m *onnx.Model, g *onnxgo.Graph, images, labels tensor.Tensor) error {
	if err := m.SetInput(0, images); err != nil {
		return err
	}
	if err := g.Run(); err != nil {
		return err
	}
	out, err := m.GetOutputTensors()
	if err != nil {
		return err
	}
	logits, classes, right := out[0].Data().([]float32), labels.Data().([]int64), 0
	for i, class := range classes {
		best := 0
		for c, x := range logits[10*i : 10*i+10] {
			if x > logits[10*i+best] {
				best = c
			}
		}
		if int64(best) == class {
			right++
		}
	}
	fmt.Printf("%d of %d digits are recognised\n", right, len(classes))
	return nil
}
