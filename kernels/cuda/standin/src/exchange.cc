// What warps do together, and asynchronous copies.
#include "engine.h"

namespace engine {

typedef float floats __attribute__((vector_size(32)));

static void shuffle(Thread* lanes) {
	uint64_t in[kWarp];
	uint32_t ballot = 0;
	for (int l = 0; l < kWarp; l++) {
		in[l] = lanes[l].x.bits;
		ballot |= uint32_t(in[l] & 1) << l;
	}
	for (int l = 0; l < kWarp; l++) {
		Exchange& x = lanes[l].x;
		switch (x.kind) {
		case kIndex:
			x.bits = in[x.argument & 31];
			break;
		case kXor:
			x.bits = in[(l ^ x.argument) & 31];
			break;
		case kDown:
			x.bits = in[l + x.argument < kWarp ? l + x.argument : l];
			break;
		case kUp:
			x.bits = in[l >= x.argument ? l - x.argument : l];
			break;
		case kBallot:
			x.bits = ballot;
			break;
		}
	}
}

// matrices does ldmatrix: lane l's register i holds two elements of row l/4 of matrix i, or of that column.
static void matrices(Thread* lanes, bool trans) {
	int count = lanes[0].x.argument;
	for (int i = 0; i < count; i++) {
		uint16_t m[8][8];
		for (int r = 0; r < 8; r++) {
			memcpy(m[r], lanes[8 * i + r].x.from, 16);
		}
		for (int l = 0; l < kWarp; l++) {
			int g = l / 4, t = l % 4;
			uint16_t low = trans ? m[2 * t][g] : m[g][2 * t], high = trans ? m[2 * t + 1][g] : m[g][2 * t + 1];
			((uint32_t*)lanes[l].x.to)[i] = low | uint32_t(high) << 16;
		}
	}
}

template <class T> static float widen(uint32_t bits) { return gtc::to_float(T{gtc::u16(bits)}); }

// product does mma: what each lane holds of a, b and d is in gtc_device.cuh.
template <class T> static void product16(Thread* lanes) {
	float a[16][16];
	floats b[16], d[16];
	for (int l = 0; l < kWarp; l++) {
		int g = l / 4, t = l % 4;
		const uint32_t *ra = (const uint32_t*)lanes[l].x.from, *rb = (const uint32_t*)lanes[l].x.more;
		const float* rd = (const float*)lanes[l].x.to;
		for (int i = 0; i < 4; i++) {
			int row = g + i % 2 * 8, column = 2 * t + i / 2 * 8;
			a[row][column] = widen<T>(ra[i]);
			a[row][column + 1] = widen<T>(ra[i] >> 16);
			d[g + i / 2 * 8][2 * t + i % 2] = rd[i];
		}
		for (int i = 0; i < 2; i++) {
			b[2 * t + 8 * i][g] = widen<T>(rb[i]);
			b[2 * t + 8 * i + 1][g] = widen<T>(rb[i] >> 16);
		}
	}
	for (int r = 0; r < 16; r++) {
		floats sum = d[r];
		for (int k = 0; k < 16; k++) {
			sum += a[r][k] * b[k];
		}
		d[r] = sum;
	}
	for (int l = 0; l < kWarp; l++) {
		float* rd = (float*)lanes[l].x.to;
		for (int i = 0; i < 4; i++) {
			rd[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
		}
	}
}

// product8 is that of tf32, 16 x 8 by 8 x 8. The unit does not see the lower 13 bits of what it is given.
static void product8(Thread* lanes) {
	float a[16][8];
	floats b[8], d[16];
	for (int l = 0; l < kWarp; l++) {
		int g = l / 4, t = l % 4;
		const uint32_t *ra = (const uint32_t*)lanes[l].x.from, *rb = (const uint32_t*)lanes[l].x.more;
		const float* rd = (const float*)lanes[l].x.to;
		for (int i = 0; i < 4; i++) {
			a[g + i % 2 * 8][t + i / 2 * 4] = __uint_as_float(ra[i] & ~0x1fffu);
			d[g + i / 2 * 8][2 * t + i % 2] = rd[i];
		}
		for (int i = 0; i < 2; i++) {
			b[t + 4 * i][g] = __uint_as_float(rb[i] & ~0x1fffu);
		}
	}
	for (int r = 0; r < 16; r++) {
		for (int k = 0; k < 8; k++) {
			d[r] += a[r][k] * b[k];
		}
	}
	for (int l = 0; l < kWarp; l++) {
		float* rd = (float*)lanes[l].x.to;
		for (int i = 0; i < 4; i++) {
			rd[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
		}
	}
}

void perform(Worker* w, int warp) {
	Thread* lanes = &w->thread[warp * kWarp];
	int kind = lanes[0].x.kind;
	switch (kind) {
	case kSyncWarp:
		w->warp[warp].epoch++;
		break;
	case kMatrix:
	case kMatrixTrans:
		matrices(lanes, kind == kMatrixTrans);
		break;
	case kProduct:
		if (lanes[0].x.argument == 0) {
			product16<gtc::bf16>(lanes);
		} else if (lanes[0].x.argument == 1) {
			product16<gtc::f16>(lanes);
		} else {
			product8(lanes);
		}
		break;
	default:
		shuffle(lanes);
		w->warp[warp].epoch++;
	}
}

static Exchange& mine() { return self->thread[self->now].x; }

static void finish(Thread& t, unsigned last) {
	size_t n = 0;
	while (n < t.copies.size() && t.copies[n].group <= last) {
		const Copy& c = t.copies[n++];
		if (checked) {
			check_copy_ends(c);
		}
		if (c.valid) {
			memcpy(c.to, c.from, c.bytes);
		} else {
			memset(c.to, 0, c.bytes);
		}
	}
	t.copies.erase(t.copies.begin(), t.copies.begin() + n);
}

}  // namespace engine

using namespace engine;

extern "C" {
void gtc_host_sync_warp(const char*, int) {
	mine() = Exchange{kSyncWarp, 0, 0, nullptr, nullptr, nullptr};
	exchange();
}

uint64_t gtc_host_shuffle(int kind, uint64_t bits, int argument) {
	Exchange& x = mine();
	x = Exchange{kind, argument, bits, nullptr, nullptr, nullptr};
	exchange();
	return x.bits;
}

void gtc_host_ldmatrix(uint32_t* r, const void* row, int count, bool trans) {
	Exchange& x = mine();
	x = Exchange{trans ? kMatrixTrans : kMatrix, count, 0, r, const_cast<void*>(row), nullptr};
	if (self->now % kWarp < 8 * count) {
		uintptr_t at = uintptr_t(row) - uintptr_t(self->shared);
		if (at >= kShared) {
			fault("%s gives ldmatrix a row outside shared memory", name_thread(self->now).c_str());
		}
		if (at % 16 != 0) {
			gtc_host_misaligned(row, 16);
		}
		if (checked) {
			check_access(row, 16, false, false, uintptr_t(__builtin_return_address(0)));
		}
	}
	exchange();
}

void gtc_host_mma(float* d, const uint32_t* a, const uint32_t* b, int kind) {
	mine() = Exchange{kProduct, kind, 0, d, const_cast<uint32_t*>(a), const_cast<uint32_t*>(b)};
	exchange();
}

void gtc_host_copy(void* smem, const void* gmem, int bytes, bool valid) {
	Thread& t = self->thread[self->now];
	Copy c = {smem, gmem, bytes, valid, t.groups + 1};
	if (uintptr_t(smem) - uintptr_t(self->shared) >= kShared) {
		fault("%s gives cp_async a destination outside shared memory", name_thread(self->now).c_str());
	}
	if (uintptr_t(smem) % bytes != 0 || (valid && uintptr_t(gmem) % bytes != 0)) {
		gtc_host_misaligned(uintptr_t(smem) % bytes != 0 ? smem : gmem, bytes);
	}
	if (checked) {
		check_copy_begins(c, uintptr_t(__builtin_return_address(0)));
	}
	t.copies.push_back(c);
}

void gtc_host_copy_commit() { self->thread[self->now].groups++; }

void gtc_host_copy_wait(int groups) {
	Thread& t = self->thread[self->now];
	if (t.groups >= unsigned(groups)) {
		finish(t, t.groups - unsigned(groups));
	}
}
}
