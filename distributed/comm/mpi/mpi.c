//go:build mpi

#define _GNU_SOURCE
#include "gtc_mpi.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static atomic_int stopped;

int gtc_mpi_init(int *rank, int *size, int *threads) {
	/* Go's runtime needs the signals of faults for itself. */
	setenv("OMPI_MCA_opal_signal", "", 0);
	int code, running;
	if ((code = MPI_Initialized(&running)) != 0)
		return code;
	if (!running && (code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, threads)) != 0)
		return code;
	if ((code = MPI_Query_thread(threads)) != 0)
		return code;
	*threads = *threads >= MPI_THREAD_MULTIPLE;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if ((code = MPI_Comm_rank(MPI_COMM_WORLD, rank)) != 0)
		return code;
	return MPI_Comm_size(MPI_COMM_WORLD, size);
}

int gtc_mpi_finalize(void) { return MPI_Finalize(); }

void gtc_mpi_abort(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

void gtc_mpi_stop(void) { atomic_store(&stopped, 1); }

void gtc_mpi_text(int code, char *buf, int size) {
	char text[MPI_MAX_ERROR_STRING + 1];
	int n = 0;
	if (MPI_Error_string(code, text, &n) != 0)
		n = 0;
	if (n >= size)
		n = size - 1;
	for (int i = 0; i < n; i++)
		buf[i] = text[i];
	buf[n] = 0;
}

MPI_Comm gtc_mpi_world(void) { return MPI_COMM_WORLD; }

int gtc_mpi_sub(MPI_Comm c, int n, const int *ranks, int tag, MPI_Comm *out) {
	MPI_Group all, some;
	int code;
	if ((code = MPI_Comm_group(c, &all)) != 0)
		return code;
	if ((code = MPI_Group_incl(all, n, ranks, &some)) == 0) {
		code = MPI_Comm_create_group(c, some, tag, out);
		MPI_Group_free(&some);
	}
	MPI_Group_free(&all);
	if (code == 0)
		code = MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
	return code;
}

int gtc_mpi_free(MPI_Comm c) { return MPI_Comm_free(&c); }

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* polls before a rank lets others have its core, and before it sleeps. */
enum { SPINS = 2000, YIELDS = 20000 };

/* finish waits for a request. It polls: first at once, then between yields, then every 50 us. */
static int finish(int code, MPI_Request *r, MPI_Status *s, double timeout) {
	if (code != 0)
		return code;
	double end = 0;
	for (long n = 0;; n++) {
		int done = 0;
		if ((code = MPI_Test(r, &done, s)) != 0 || done)
			return code;
		if (n < SPINS)
			continue;
		if (atomic_load(&stopped))
			return GTC_MPI_STOPPED;
		if (n % 64 == 0) {
			double t = now();
			if (end == 0)
				end = t + timeout;
			else if (t > end)
				return GTC_MPI_HUNG;
		}
		if (n < YIELDS) {
			sched_yield();
		} else {
			struct timespec pause = {0, 50000};
			nanosleep(&pause, NULL);
		}
	}
}

/* element is the MPI type of size bytes; data is only moved. */
static MPI_Datatype element(int size) {
	switch (size) {
	case 2: return MPI_UINT16_T;
	case 4: return MPI_UINT32_T;
	case 8: return MPI_UINT64_T;
	default: return MPI_UINT8_T;
	}
}

int gtc_mpi_barrier(MPI_Comm c, double timeout) {
	MPI_Request r;
	return finish(MPI_Ibarrier(c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_bcast(uintptr_t buf, int n, int size, int root, MPI_Comm c, double timeout) {
	MPI_Request r;
	return finish(MPI_Ibcast((void *)buf, n, element(size), root, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_allgather(uintptr_t dst, uintptr_t src, int n, int size, int own, MPI_Comm c, double timeout) {
	MPI_Request r;
	MPI_Datatype t = element(size);
	return finish(MPI_Iallgather(own ? MPI_IN_PLACE : (void *)src, n, t, (void *)dst, n, t, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_allgatherv(uintptr_t buf, const int *n, const int *at, int size, MPI_Comm c, double timeout) {
	MPI_Request r;
	MPI_Datatype t = element(size);
	return finish(MPI_Iallgatherv(MPI_IN_PLACE, 0, t, (void *)buf, n, at, t, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_alltoall(uintptr_t dst, uintptr_t src, int n, int size, MPI_Comm c, double timeout) {
	MPI_Request r;
	MPI_Datatype t = element(size);
	return finish(MPI_Ialltoall((void *)src, n, t, (void *)dst, n, t, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_alltoallv(uintptr_t dst, const int *dn, const int *dat, uintptr_t src, const int *sn, const int *sat, int size,
	MPI_Comm c, double timeout) {
	MPI_Request r;
	MPI_Datatype t = element(size);
	return finish(MPI_Ialltoallv((void *)src, sn, sat, t, (void *)dst, dn, dat, t, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_gather(uintptr_t dst, uintptr_t src, int n, int size, int own, int root, MPI_Comm c, double timeout) {
	MPI_Request r;
	MPI_Datatype t = element(size);
	return finish(MPI_Igather(own ? MPI_IN_PLACE : (void *)src, n, t, (void *)dst, n, t, root, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_gatherv(uintptr_t dst, const int *n, const int *at, uintptr_t src, int mine, int size, int root, MPI_Comm c, double timeout) {
	MPI_Request r;
	MPI_Datatype t = element(size);
	return finish(MPI_Igatherv((void *)src, mine, t, (void *)dst, n, at, t, root, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_scatter(uintptr_t dst, uintptr_t src, int n, int size, int own, int root, MPI_Comm c, double timeout) {
	MPI_Request r;
	MPI_Datatype t = element(size);
	return finish(MPI_Iscatter((void *)src, n, t, own ? MPI_IN_PLACE : (void *)dst, n, t, root, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_send(uintptr_t buf, int n, int size, int to, MPI_Comm c, double timeout) {
	MPI_Request r;
	return finish(MPI_Isend((void *)buf, n, element(size), to, 0, c, &r), &r, MPI_STATUS_IGNORE, timeout);
}

int gtc_mpi_recv(uintptr_t buf, int n, int size, int from, MPI_Comm c, double timeout, int *got) {
	MPI_Request r;
	MPI_Status s;
	*got = n;
	int code = finish(MPI_Irecv((void *)buf, n, element(size), from, 0, c, &r), &r, &s, timeout);
	if (code != 0)
		return code;
	if ((code = MPI_Get_count(&s, element(size), got)) != 0)
		return code;
	return *got == n ? 0 : *got == MPI_UNDEFINED ? GTC_MPI_ELEMENT : GTC_MPI_SHORT;
}
