package cpu

/*
#cgo CFLAGS: -O3 -Wall -Wno-unknown-pragmas -std=gnu11
#cgo amd64 CFLAGS: -march=native
#cgo arm64 CFLAGS: -mcpu=native
#cgo linux CFLAGS: -fopenmp
#cgo linux LDFLAGS: -fopenmp
#cgo LDFLAGS: -lm
#cgo noescape gtc_set_threads
#cgo nocallback gtc_set_threads
void gtc_set_threads(int n);
*/
import "C"

// SetThreads sets how many threads every later kernel call uses (values below 1 mean 1). The default is 1. It must not
// be called while a kernel runs.
func SetThreads(n int) { C.gtc_set_threads(C.int(n)) }
