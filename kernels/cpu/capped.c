// Sums of softly capped terms by rows, in double precision.
#include <math.h>

#include "threads.h"

void gtc_capped_sum(const float *x, float *y, long rows, long n, float cap) {
	int nt = gtc_for_threads(16 * (double)rows * (double)n);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long i = 0; i < rows; i++) {
		double sum = 0;
		for (long j = 0; j < n; j++) sum += cap * tanh(x[i * n + j] / cap);
		y[i] = (float)sum;
	}
}
