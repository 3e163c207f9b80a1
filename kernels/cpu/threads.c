#include "threads.h"

#include <stdio.h>
#include <stdlib.h>

int gtc_threads_n = 1;

static _Thread_local void *scratch;
static _Thread_local size_t scratch_bytes;

void gtc_set_threads(int n) {
#ifdef _OPENMP
	gtc_threads_n = n < 1 ? 1 : n;
	omp_set_num_threads(gtc_threads_n);
#else
	(void)n;
#endif
}

void *gtc_scratch(size_t bytes) {
	if (bytes > scratch_bytes) {
		free(scratch);
		scratch = NULL;
		if (posix_memalign(&scratch, 64, bytes)) {
			fprintf(stderr, "gtc: out of memory for %zu bytes of kernel scratch\n", bytes);
			abort();
		}
		scratch_bytes = bytes;
	}
	return scratch;
}
