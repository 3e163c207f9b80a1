/* MPI's side of bench/comm: all_reduce (f32, sum, in place) as often as asked.
 *
 *	mpicc -O2 -o allreduce allreduce.c && mpirun -n 2 ./allreduce BYTES WARM TIMES
 *
 * Rank 0 prints a line of the library's version and then one line of seconds for each all_reduce that counts. Every rank
 * checks the last sum. Buffers are in huge pages where the system has them, as those of a gtc rank are.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	size_t bytes = strtoul(argv[1], NULL, 10), n = bytes / sizeof(float);
	int warm = atoi(argv[2]), times = atoi(argv[3]), rank, size;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	float *buf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED)
		return 1;
	madvise(buf, bytes, MADV_HUGEPAGE);
	if (rank == 0) {
		char version[MPI_MAX_LIBRARY_VERSION_STRING];
		int len;
		MPI_Get_library_version(version, &len);
		printf("%.*s\n", (int)strcspn(version, ",\n"), version);
	}
	for (int t = -warm; t < times; t++) {
		for (size_t i = 0; i < n; i++)
			buf[i] = (float)(rank + 1);
		MPI_Barrier(MPI_COMM_WORLD);
		double start = MPI_Wtime();
		MPI_Allreduce(MPI_IN_PLACE, buf, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		double took = MPI_Wtime() - start;
		if (rank == 0 && t >= 0)
			printf("%.9f\n", took);
	}
	float want = (float)size * (float)(size + 1) / 2;
	for (size_t i = 0; i < n; i++)
		if (buf[i] != want) {
			fprintf(stderr, "rank %d: element %zu is %g, want %g\n", rank, i, buf[i], want);
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	MPI_Finalize();
	return 0;
}
