// Package arrays imports operators on arrays: element by element, by shape, by index, sums over dims, random numbers.
package arrays

import "slices"

// Rows are the operators on arrays: element by element, by shape, by index, sums over dims.
var Rows = slices.Concat(pointwiseRows, castRows, shapeRows, indexRows, reduceRows, padRows, flowRows, randomRows, signalRows)
