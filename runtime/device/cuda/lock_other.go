//go:build !unix

package cuda

// lock does nothing here: processes that start together may choose differently.
func lock(string) (unlock func()) { return func() {} }
