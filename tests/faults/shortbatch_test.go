package faults

// Rows about a last batch that is not full.
var (
	shortComparisons []comparison
	shortTrainings   []training
)
