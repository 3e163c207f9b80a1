package faults

// Rows about gathers, and where the batch is.
var (
	gatherComparisons []comparison
	gatherTrainings   []training
)
