package faults

// Rows about forms of files.
var (
	fileComparisons = []comparison{
		{file: "unsorted", says: []string{"are not sorted"}},
		{file: "layernorm_opset14"},
		{file: "sparse_weight", flags: []string{"--train", "w"}, says: []string{`"w" is a sparse initializer`}},
		{file: "declared_otherwise", reference: "unsorted", layouts: []string{""}, refused: `"w" has dims [6 5] and is declared as an input of dims [6 7]`},
		{file: "two_payloads", reference: "unsorted", layouts: []string{""}, refused: "more than one payload"},
		{file: "group_zero", reference: "unsorted", layouts: []string{""}, refused: `attribute "group" is 0`},
	}
	fileTrainings []training
)
