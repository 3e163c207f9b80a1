// Threads and per-thread scratch memory.
#ifndef GTC_THREADS_H
#define GTC_THREADS_H

#include <stddef.h>

#ifdef _OPENMP
#include <omp.h>
// gtc_tid and gtc_team are the calling thread's place in its team and the team's size, which may be smaller than what a
// region asked for.
static inline int gtc_tid(void) { return omp_get_thread_num(); }
static inline int gtc_team(void) { return omp_get_num_threads(); }
#else
static inline int gtc_tid(void) { return 0; }
static inline int gtc_team(void) { return 1; }
#endif

// gtc_threads_n is the thread count set by SetThreads; 1 without OpenMP.
extern int gtc_threads_n;

// gtc_scratch returns at least bytes of 64-byte aligned memory that belongs to the calling thread until its next call.
// It grows on demand and is never given back, so a training loop allocates only in its first step.
void *gtc_scratch(size_t bytes);

// gtc_for_threads is the number of threads worth waking for this many elementary operations.
static inline int gtc_for_threads(double work) { return work < 32768 ? 1 : gtc_threads_n; }

#endif
