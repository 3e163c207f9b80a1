//go:build mpi

package loop

import _ "github.com/gtc-compiler/gtc/distributed/comm/mpi" // registers itself
