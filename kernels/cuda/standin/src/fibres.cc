// Fibres, and whose turn it is: a thread that waits leaves its fibre to itself, and another thread runs on another fibre.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine.h"

namespace engine {

// Fibres.

#if defined(__x86_64__)
__asm__(
    ".text\n.p2align 4\n.type gtc_host_switch,@function\n.globl gtc_host_switch\n.hidden gtc_host_switch\ngtc_host_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size gtc_host_switch,.-gtc_host_switch\n");
void fresh(Fibre* f, void (*entry)()) {
	void** sp = (void**)f->top;
	*--sp = nullptr;  // where the entry would return to; it also aligns the stack as a call does
	*--sp = (void*)entry;
	for (int i = 0; i < 6; i++) {
		*--sp = nullptr;
	}
	f->sp = sp;
}
#else
#include <ucontext.h>
// Slow, for processors without the assembly above: each switch makes a system call. sp points at a ucontext_t.
void gtc_host_switch(void** save, void* load) {
	ucontext_t here;
	*save = &here;
	swapcontext(&here, (ucontext_t*)load);
}
void fresh(Fibre* f, void (*entry)()) {
	ucontext_t* u = (ucontext_t*)f->stack;
	getcontext(u);
	u->uc_stack.ss_sp = f->stack + sizeof *u;
	u->uc_stack.ss_size = f->top - f->stack - sizeof *u;
	u->uc_link = nullptr;
	makecontext(u, entry, 0);
	f->sp = u;
}
#endif

void fibre_main();
static void waits_in_vain(Worker* w, int warp);

Fibre* unpark(Worker* w) {
	if (!w->parked.empty()) {
		Fibre* f = w->parked.back();
		w->parked.pop_back();
		return f;
	}
	Fibre* f = new Fibre;
	f->stack = (char*)mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (f->stack == (char*)MAP_FAILED) {
		fprintf(stderr, "gtc's host engine: no address space for the stacks of %zu threads\n", w->fibres.size() + 1);
		abort();
	}
	// The tops are spread, so that the frames of many fibres do not share the same few lines of the caches.
	f->top = f->stack + kStack - w->fibres.size() % 61 * 576;
	f->top -= uintptr_t(f->top) % 16;
	fresh(f, fibre_main);
	w->fibres.push_back(f);
	return f;
}

// next is the thread that runs after t: lanes of t's warp first. -1 when none can run.
static int next(Worker* w, int t) {
	int at = t / kWarp, lane = t % kWarp;
	if (uint32_t m = w->warp[at].runnable) {
		uint32_t later = m & ~((uint32_t(2) << lane) - 1);
		return at * kWarp + __builtin_ctz(later ? later : m);
	}
	for (int i = 1; i < w->warps; i++) {
		int k = at + i < w->warps ? at + i : at + i - w->warps;
		if (uint32_t m = w->warp[k].runnable) {
			return k * kWarp + __builtin_ctz(m);
		}
	}
	return -1;
}

// run_next leaves the thread that runs, which waits, and returns when it runs again.
static void run_next(Worker* w, int n) {
	Fibre* from = w->current;
	int t = w->now;
	w->thread[t].fibre = from;
	Fibre* to = w->thread[n].fibre;
	if (to == nullptr) {
		to = unpark(w);
		to->start = n;
		w->thread[n].fibre = to;
	}
	w->now = n;
	w->current = to;
	threadIdx = w->index[n];
	gtc_host_switch(&from->sp, to->sp);
}

template <size_t... I> static void call_with(void* function, void* const* a, std::index_sequence<I...>) {
	((void (*)(decltype((void)I, (void*)0)...))function)(a[I]...);
}

// call calls the kernel with as many pointers as it takes, or more, which do no harm.
static void call(const gtc_image_launch* l) {
	unsigned n = l->kernel->parameters;
	void* f = l->kernel->function;
	if (n <= 6) {
		void* few[6] = {};
		for (unsigned i = 0; i < n; i++) {
			few[i] = l->arguments[i];
		}
		call_with(f, few, std::make_index_sequence<6>());
		return;
	}
	void* padded[kMaxArguments];  // on this stack; only what is passed is written
	unsigned pass = n <= 16 ? 16 : n <= 64 ? 64 : kMaxArguments;
	for (unsigned i = 0; i < pass; i++) {
		padded[i] = i < n ? l->arguments[i] : nullptr;
	}
	if (pass == 16) {
		call_with(f, padded, std::make_index_sequence<16>());
	} else if (pass == 64) {
		call_with(f, padded, std::make_index_sequence<64>());
	} else {
		call_with(f, padded, std::make_index_sequence<kMaxArguments>());
	}
}

// ended takes note that the running thread has returned and says which one runs next, or -1 at the end of the block.
static int ended(Worker* w) {
	int t = w->now, at = t / kWarp;
	Thread& me = w->thread[t];
	if (!me.copies.empty()) {
		gtc_host_copy_commit();
		gtc_host_copy_wait(0);
	}
	Warp& warp = w->warp[at];
	warp.runnable &= ~(1u << t % kWarp);
	warp.done |= 1u << t % kWarp;
	w->done++;
	if (w->at_barrier > 0) {
		fault("%s ends while others are at the barrier at %s:%d", name_thread(t).c_str(), w->barrier.file, w->barrier.line);
	}
	if (warp.waiting && !warp.runnable) {
		waits_in_vain(w, at);
	}
	return w->done == w->threads ? -1 : next(w, t);
}

// fibre_main calls kernels for the threads that the fibre is given, and parks between them.
void fibre_main() {
	for (;;) {
		Worker* w = self;
		Fibre* me = w->current;
		for (int t = me->start; t >= 0;) {
			w->now = t;
			w->thread[t].fibre = me;
			threadIdx = w->index[t];
			call(w->launch);
			w->thread[t].fibre = nullptr;
			int n = ended(w);
			if (n < 0) {  // the end of the block
				w->parked.push_back(me);
				gtc_host_switch(&me->sp, w->main_sp);
				break;
			}
			if (w->thread[n].fibre != nullptr) {
				w->parked.push_back(me);
				w->now = n;
				w->current = w->thread[n].fibre;
				threadIdx = w->index[n];
				gtc_host_switch(&me->sp, w->current->sp);
				break;
			}
			t = n;
		}
	}
}

static void waits_in_vain(Worker* w, int at) {
	Warp& warp = w->warp[at];
	int waits = __builtin_ctz(warp.waiting);
	uint32_t others = warp.all & ~warp.waiting;
	int other = others ? __builtin_ctz(others) : 0;
	const char* does = warp.done >> other & 1 ? "has ended" : "is at a barrier of the block";
	static const char* const names[] = {"shfl", "shfl_xor", "shfl_down", "shfl_up", "warp_ballot", "sync_warp", "ldmatrix", "ldmatrix", "mma"};
	fault("%s waits for its warp in %s, but %s %s", name_thread(at * kWarp + waits).c_str(),
	      names[w->thread[at * kWarp + waits].x.kind], name_thread(at * kWarp + other).c_str(), does);
}

// Barriers.

static void barrier(Worker* w, const char* file, int line) {
	int t = w->now;
	Warp& warp = w->warp[t / kWarp];
	if (w->done > 0) {
		fault("%s is at the barrier at %s:%d, but %d threads of the block have ended", name_thread(t).c_str(), file, line, w->done);
	}
	if (w->at_barrier == 0) {
		w->barrier = Place{file, line};
	} else if (w->barrier.line != line || (w->barrier.file != file && strcmp(w->barrier.file, file) != 0)) {
		fault("%s is at the barrier at %s:%d while others are at the one at %s:%d", name_thread(t).c_str(), file, line,
		      w->barrier.file, w->barrier.line);
	}
	warp.runnable &= ~(1u << t % kWarp);
	warp.at_barrier |= 1u << t % kWarp;
	if (++w->at_barrier < w->threads) {
		if (warp.waiting && !warp.runnable) {
			waits_in_vain(w, t / kWarp);
		}
		run_next(w, next(w, t));
		return;
	}
	w->at_barrier = 0;
	w->epoch++;
	for (int i = 0; i < w->warps; i++) {
		w->warp[i].runnable = w->warp[i].all;
		w->warp[i].at_barrier = 0;
	}
	// The last one goes on; the first warp then comes in turn.
}

void exchange() {
	Worker* w = self;
	int t = w->now, at = t / kWarp, lane = t % kWarp;
	Warp& warp = w->warp[at];
	int kind = w->thread[t].x.kind;
	if (warp.all != 0xffffffffu && kind != kSyncWarp) {
		fault("%s exchanges within a warp of %d lanes", name_thread(t).c_str(), __builtin_popcount(warp.all));
	}
	if (warp.waiting) {
		int other = at * kWarp + __builtin_ctz(warp.waiting);
		if (w->thread[other].x.kind != kind) {
			fault("%s and %s of one warp are at different exchanges", name_thread(other).c_str(), name_thread(t).c_str());
		}
	}
	warp.runnable &= ~(1u << lane);
	warp.waiting |= 1u << lane;
	if (warp.waiting != warp.all) {
		if (!warp.runnable) {
			waits_in_vain(w, at);
		}
		run_next(w, next(w, t));
		return;
	}
	perform(w, at);
	warp.waiting = 0;
	warp.runnable = warp.all;
}

}  // namespace engine

extern "C" void gtc_host_sync(const char* file, int line) { engine::barrier(engine::self, file, line); }
