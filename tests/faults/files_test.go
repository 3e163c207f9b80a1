package faults

// Rows about forms of files.
var (
	fileComparisons []comparison
	fileTrainings   []training
)
