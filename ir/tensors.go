package ir

import "reflect"

// Tensors lists the tensors among the op's attributes.
func (op *Op) Tensors() []*Tensor {
	if op.Attrs == nil {
		return nil
	}
	var out []*Tensor
	v := reflect.ValueOf(op.Attrs)
	for i := range v.NumField() {
		if t, ok := v.Field(i).Interface().(*Tensor); ok && t != nil {
			out = append(out, t)
		}
	}
	return out
}
