package faults

// Rows about losses inside graphs.
var (
	lossComparisons = []comparison{
		{file: "ce_plus_aux", layouts: lossLayouts, processes: []string{"--pp 2 --microbatches 2"}},
		{file: "ce_times_half", layouts: lossLayouts, processes: []string{"--microbatches 4"}},
	}
	lossTrainings []training
)

var lossLayouts = []string{"", "--dp 2", "--tp 2", "--microbatches 2", "--microbatches 4", "--dp 2 --microbatches 2", "--pp 2 --microbatches 2",
	"--pp 2 --microbatches 4", "--pp 2 --dp 2 --microbatches 2"}
