// Package ops defines every op of the IR: one file per family, all rules of an op in one place.
//
// # Conventions
//
// The variable of an op is <Name>Def, its attribute struct <Name>Attrs, its constructor Name, its text name the
// lower_snake form. Constructors panic with an *ir.Error on operands that do not fit (see ir.Recover). Core ops
// neither broadcast nor cast: Broadcast2, BroadcastTo, Scalar and ScalarLike make operands agree. Reductions keep
// reduced dims as size 1. Dims count from 0 and are never negative in attributes. Float attributes are float64.
//
// # Helpers for writing an op
//
//   - pointwise(def, pw{…}) fills all rules of an elementwise op from its meaning, its expression and its VJP.
//   - need, needFloat, needDim, sameTypes check operands inside Infer; in(op) and outDims(op) give dims for Factors.
//   - mustRule(factor.Parse(…)) makes a Rule from an einsum-like string.
//   - each(dims, func(index []int, flat int)) walks an index space row-major; copyElem, addElem, remap and strided
//     move elements between arrays.
//   - one(f) adapts an Eval of a single-result op; sample and samples build conformance samples.
//
// # Rules that span ops
//
// Rules.Resize gives the attributes that carry sizes (reshape, expand, iota, …) for an op whose operands and results
// have other dims: what spmd and the conformance test need to split an op.
//
// An Impl of kind None means that this instance has no kernel of its own: its Decompose leads to ops that have one. So
// a gather along dim 1 decomposes into transposes and a gather along dim 0, which has the template GatherRows.
//
// A matmul or conv with a bias keeps its reduced factor whole, because each part would add the bias. Passes join
// biases to products only after sharding.
//
// conform_test.go checks every op: inferred shapes against evaluated ones, decomposition and kernel expression
// against evaluation, gradients against central differences, each splittable factor by running halves, and the text
// form there and back.
package ops
