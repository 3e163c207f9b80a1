package faults

// Rows about losses inside graphs.
var (
	lossComparisons = []comparison{
		{file: "ce_plus_aux", layouts: []string{"", "--dp 2"}},
	}
	lossTrainings []training
)
