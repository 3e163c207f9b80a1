package abi_test

import (
	"encoding/json"
	"testing"

	"github.com/gtc-compiler/gtc/internal/mutations"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// TestMutationsOfManifests: gtc.json holds every field of the plan's structs, whatever they have or get, and what is read back of it
// is what was written.
func TestMutationsOfManifests(t *testing.T) {
	mutations.Zeroed(mutations.Of(t, 150), "gtc.json", func(m abi.Manifest) (back abi.Manifest) {
		data, err := json.Marshal(m)
		if err == nil {
			err = json.Unmarshal(data, &back)
		}
		if err != nil {
			t.Fatal(err)
		}
		return back
	})
}
