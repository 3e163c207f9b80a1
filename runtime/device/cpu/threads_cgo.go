//go:build cgo

package cpu

import kernels "github.com/gtc-compiler/gtc/kernels/cpu"

// SetThreads sets the threads of the hand-made kernels; generated programs have their own setter beside it.
func SetThreads(n int) { kernels.SetThreads(n) }
