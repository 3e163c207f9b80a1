// Reading and writing rows at run-time indices, for any element type.
#ifndef GTC_INDEX_H
#define GTC_INDEX_H

#include <stdint.h>

// idx32 says that indices are int32 rather than int64.
int64_t gtc_take(const void *table, const void *idx, void *out, long outer, long size, long bytes, long n, long idx32);

// How an update joins the element that is there.
enum { GTC_SET = 0, GTC_ADD = 1, GTC_MUL = 2, GTC_MAX = 3, GTC_MIN = 4, GTC_SAME = 5 };
int64_t gtc_scatter_rows(const void *data, const int64_t *idx, const void *upd, void *out, long rows, long width, long n, long elem,
			 long how);

typedef struct {
	long outer, n, inner; // the tensor, seen as [outer, n, inner]
	long k, largest, elem;
} topk_dims;
void gtc_topk(const void *x, void *values, int64_t *at, const topk_dims *d);

typedef struct {
	long outer, n, inner; // the tensor, seen as [outer, n, inner]
	long elem, product, exclusive, reverse;
} scan_dims;
void gtc_scan(const void *x, void *y, const scan_dims *d);

#endif
