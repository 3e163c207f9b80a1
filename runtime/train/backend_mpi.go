//go:build mpi

package train

import _ "github.com/gtc-compiler/gtc/distributed/comm/mpi" // registers itself
