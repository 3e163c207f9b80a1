// Package layers imports the operators of layers: products, convolutions, norms, attention, pooling, sampling.
package layers

import "slices"

// Rows are the operators of layers: products, convolutions, norms, attention, pooling, sampling.
var Rows = slices.Concat(linearRows, activationRows, normRows, attentionRows, poolRows, resizeRows, samplingRows)
