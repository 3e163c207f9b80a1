package cuda

import "testing"

// PackBytes bounds packed tensors for the length of a test.
func PackBytes(t *testing.T, n int) {
	old := packedBytes
	packedBytes = n
	t.Cleanup(func() { packedBytes = old })
}
