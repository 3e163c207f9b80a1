// Package domains imports the quantising operators and those of other domains: com.microsoft and ai.onnx.ml.
package domains

import "slices"

// Rows are the quantising operators and those of other domains: com.microsoft, ai.onnx.ml.
var Rows = slices.Concat(quantRows, quantContribRows, contribRows, mlRows, tfidfRows)
