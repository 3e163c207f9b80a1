/* What mpi.go calls of MPI: constants that are macros, and non-blocking calls with a wait that times out.
 *
 * Buffers are numbers, not pointers: they may lie in a Go object that also holds pointers, which cgo would refuse. Go moves
 * nothing on its heap. Every function returns 0, an MPI error code, or one of the codes below. Counts and displacements are in elements of
 * size bytes. */
#ifndef GTC_MPI_H
#define GTC_MPI_H

#include <mpi.h>
#include <stdint.h>

enum { GTC_MPI_HUNG = -1, GTC_MPI_STOPPED = -2, GTC_MPI_SHORT = -3, GTC_MPI_ELEMENT = -4 };

/* gtc_mpi_init starts MPI. *threads is whether any thread may call it at any time. */
int gtc_mpi_init(int *rank, int *size, int *threads);
int gtc_mpi_finalize(void);
void gtc_mpi_abort(int code);
/* gtc_mpi_stop makes waits in progress and to come return GTC_MPI_STOPPED. */
void gtc_mpi_stop(void);
void gtc_mpi_text(int code, char *buf, int size);

MPI_Comm gtc_mpi_world(void);
int gtc_mpi_sub(MPI_Comm c, int n, const int *ranks, int tag, MPI_Comm *out);
int gtc_mpi_free(MPI_Comm c);

int gtc_mpi_barrier(MPI_Comm c, double timeout);
int gtc_mpi_bcast(uintptr_t buf, int n, int size, int root, MPI_Comm c, double timeout);
/* own: src is this rank's own block of dst. */
int gtc_mpi_allgather(uintptr_t dst, uintptr_t src, int n, int size, int own, MPI_Comm c, double timeout);
int gtc_mpi_allgatherv(uintptr_t buf, const int *n, const int *at, int size, MPI_Comm c, double timeout);
int gtc_mpi_alltoall(uintptr_t dst, uintptr_t src, int n, int size, MPI_Comm c, double timeout);
int gtc_mpi_alltoallv(uintptr_t dst, const int *dn, const int *dat, uintptr_t src, const int *sn, const int *sat, int size,
	MPI_Comm c, double timeout);
int gtc_mpi_gather(uintptr_t dst, uintptr_t src, int n, int size, int own, int root, MPI_Comm c, double timeout);
int gtc_mpi_gatherv(uintptr_t dst, const int *n, const int *at, uintptr_t src, int mine, int size, int root, MPI_Comm c, double timeout);
int gtc_mpi_scatter(uintptr_t dst, uintptr_t src, int n, int size, int own, int root, MPI_Comm c, double timeout);
int gtc_mpi_send(uintptr_t buf, int n, int size, int to, MPI_Comm c, double timeout);
/* gtc_mpi_recv: *got is the number of elements that came, on GTC_MPI_SHORT. */
int gtc_mpi_recv(uintptr_t buf, int n, int size, int from, MPI_Comm c, double timeout, int *got);

#endif
