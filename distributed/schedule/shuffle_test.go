package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestShuffled: an order of ready actions has the same actions, runs to its end, and is another for another seed; with a need
// that was forgotten some order waits forever.
func TestShuffled(t *testing.T) {
	const seeds = 8
	for _, name := range Names() {
		table, err := Make(name, 3, 0, 6)
		if err != nil {
			t.Fatal(err)
		}
		costs := Uniform(table.Parts(), 1, 1, 1, 0.5)
		orders, stuck := map[string]bool{}, 0
		for seed := range uint64(seeds) {
			s := table.Shuffled(seed, nil)
			orders[fmt.Sprint(s.ranks)] = true
			if _, err := s.Simulate(costs); err != nil {
				t.Errorf("%s, seed %d: %v", name, seed, err)
			}
			for i := range table.Stages {
				if list := func(t *Table) []string {
					var list []string
					for _, a := range t.Rank(i) {
						list = append(list, a.String())
					}
					slices.Sort(list)
					return list
				}; !slices.Equal(list(s), list(table)) {
					t.Errorf("%s, seed %d: stage %d does other actions", name, seed, i)
				}
			}
			wrong := table.Shuffled(seed, func(a Action, part int, kind Kind, of int) bool { return a.Kind == B && kind == F && part == of })
			if _, err := wrong.Simulate(costs); err != nil && strings.Contains(err.Error(), "waits forever before B") {
				stuck++
			}
		}
		if len(orders) < seeds || stuck == 0 {
			t.Errorf("%s: %d orders of %d seeds; %d of those without a need are noticed", name, len(orders), seeds, stuck)
		}
	}
}
