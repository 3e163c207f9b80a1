// A thread team that stands in for libgomp's.
//
// GCC turns "#pragma omp parallel" into a call of GOMP_parallel, static loops into arithmetic on omp_get_thread_num and
// omp_get_num_threads, and joins into GOMP_barrier. This file defines those few entry points, so that they win over
// libgomp's in any program that links this package. The reasons:
//   - libgomp's idle threads spin for about 15 ms before they sleep. When anything else wants the cores (a second rank, a
//     data loader, other tests) a 0.3 ms product then takes 20 ms. The limit can be set only by an environment variable
//     that is read before main. Here a thread spins for about 0.1 ms, longer than the gaps between kernels of a step.
//   - libgomp keeps one pool per calling thread, and goroutines move between threads. Here there is one pool.
//   - starting a region costs well under a microsecond while the workers still spin.
// Regions nested in a region, and regions entered while another thread's region runs, get a team of one, as OpenMP
// allows; dynamic schedules, tasks and sections are not supported and must not be used in kernels.
//
// Only for GCC on Linux; elsewhere the compiler's own OpenMP runtime serves.
#if defined(_OPENMP) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)

#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_TEAM = 255, SPINS = 2000 };

typedef struct {
	int id, n;
} member;

static _Thread_local member self = {0, 1};

// call is (generation << 8 | team size), so that a worker learns both at once: one that sits a region out can never
// mistake the next region's size for this one's.
static struct {
	_Alignas(64) _Atomic uint32_t call;
	_Alignas(64) _Atomic uint32_t pending; // workers still in the region
	_Alignas(64) _Atomic uint32_t arrived, barrier;
	_Alignas(64) void (*fn)(void *);
	void *data;
	int workers, most; // running workers; team size when a region names none
	pthread_mutex_t busy;
} team = {.most = 1, .busy = PTHREAD_MUTEX_INITIALIZER};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

// asleep counts threads in or near futex; a waker that reads 0 after its store knows that whoever comes later will see it.
static _Atomic int asleep;

static void sleep_on(_Atomic uint32_t *word, uint32_t value) {
	atomic_fetch_add(&asleep, 1);
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
	atomic_fetch_sub(&asleep, 1);
}
static void wake(_Atomic uint32_t *word) {
	if (atomic_load(&asleep)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// wait_change returns once *word differs from value: first spinning, then asleep.
static uint32_t wait_change(_Atomic uint32_t *word, uint32_t value) {
	for (;;) {
		for (int i = 0; i < SPINS; i++) {
			uint32_t now = atomic_load_explicit(word, memory_order_acquire);
			if (now != value) return now;
			relax();
		}
		sleep_on(word, value);
	}
}

static void *work(void *arg) {
	int id = (int)(intptr_t)arg;
	for (uint32_t seen = 0;;) {
		uint32_t call = seen = wait_change(&team.call, seen);
		int n = (int)(call & 0xff);
		if (id >= n) continue;
		self = (member){id, n};
		team.fn(team.data);
		if (atomic_fetch_sub(&team.pending, 1) == 1) wake(&team.pending);
	}
	return NULL;
}

// recruit starts workers until the team can have n members, and gives the size it reached.
static int recruit(int n) {
	sigset_t all, old;
	if (n > MAX_TEAM) n = MAX_TEAM;
	if (team.workers + 1 >= n) return n;
	sigfillset(&all); // signals are for the host program's threads
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (team.workers + 1 < n) {
		pthread_t t;
		if (pthread_create(&t, NULL, work, (void *)(intptr_t)(team.workers + 1))) break;
		pthread_detach(t);
		team.workers++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return team.workers + 1;
}

static void run_alone(void (*fn)(void *), void *data) {
	member was = self;
	self = (member){0, 1};
	fn(data);
	self = was;
}

void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags) {
	(void)flags;
	int n = threads ? (int)threads : team.most;
	if (n <= 1 || self.n > 1 || pthread_mutex_trylock(&team.busy)) {
		run_alone(fn, data);
		return;
	}
	n = recruit(n);
	if (n == 1) {
		pthread_mutex_unlock(&team.busy);
		run_alone(fn, data);
		return;
	}
	team.fn = fn, team.data = data;
	atomic_store_explicit(&team.pending, (uint32_t)(n - 1), memory_order_relaxed);
	uint32_t call = atomic_load_explicit(&team.call, memory_order_relaxed);
	atomic_store(&team.call, ((call >> 8) + 1) << 8 | (uint32_t)n);
	wake(&team.call);
	self = (member){0, n};
	fn(data);
	self = (member){0, 1};
	for (uint32_t left; (left = atomic_load_explicit(&team.pending, memory_order_acquire));) wait_change(&team.pending, left);
	pthread_mutex_unlock(&team.busy);
}

void GOMP_barrier(void) {
	if (self.n == 1) return;
	uint32_t phase = atomic_load_explicit(&team.barrier, memory_order_acquire);
	if (atomic_fetch_add(&team.arrived, 1) + 1 == (uint32_t)self.n) {
		atomic_store(&team.arrived, 0);
		atomic_fetch_add(&team.barrier, 1);
		wake(&team.barrier);
		return;
	}
	wait_change(&team.barrier, phase);
}

int omp_get_thread_num(void) { return self.id; }
int omp_get_num_threads(void) { return self.n; }
int omp_get_max_threads(void) { return team.most; }
int omp_in_parallel(void) { return self.n > 1; }
void omp_set_num_threads(int n) { team.most = n < 1 ? 1 : n; }

#else
typedef int gtc_team_unused; // a translation unit must not be empty
#endif
