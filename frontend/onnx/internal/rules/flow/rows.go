// Package flow imports operators that repeat others: loops, branches, sequences, recurrent networks and optimizers.
package flow

import "slices"

// Rows are the operators that repeat others: loops, sequences, recurrent networks, optimizers.
var Rows = slices.Concat(loopRows, sequenceRows, recurrentRows, linearAttentionRows, trainingRows)
