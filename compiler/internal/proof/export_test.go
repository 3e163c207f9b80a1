package proof

// For tests of compiled models: every change of a program, what makes one harmless, and the simulation without the rule that
// the ranks of a stage are alike.
var (
	Mutants  = mutants
	Harmless = harmless
	With     = with
	Simulate = check
)

// What is what a mutant changed, and P its program.
func (m *mutant) What() string { return m.what }
