// Package mpi has an installed MPI move the bytes of distributed/comm: ranks
// start under its mpirun, and its networks and process managers serve.
//
// It is in a program only when that is built with the tag mpi and MPI's C
// compiler, which knows where MPI is:
//
//	CC=mpicc go build -tags mpi ./...
//	mpirun -n 4 gtc-out/bin/ranks
//
// `gtc compile --comm mpi` does the first. Importing the package registers the
// backend: it serves where mpirun has started the program, or with GTC_COMM=mpi.
//
// MPI only moves data. Sums are made here, in the tree that all backends
// share, so that they have the same bits as over `local`, and bf16 and f16 need
// no operation of MPI's. An all_reduce is an all-to-all of parts, a local sum
// and an all-gather of the sums: the bytes of a ring or of recursive halving.
//
// Calls are the non-blocking ones of MPI 3, polled with the job's time-out, so
// that a peer that hangs is an error here too. A peer that dies ends the job by
// way of mpirun, which kills all ranks.
package mpi
