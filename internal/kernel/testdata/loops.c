// The loops that package kernel is measured against, as a C compiler makes them:
//   gcc -O3 -march=native -o loops loops.c
// For each line "name,bytes,calls" on standard input it prints the nanoseconds of one call. Arrays are
// page-aligned, apart, and zero.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

#define FOLD(name, type, expression)                                       \
	NOINLINE static void name(void *p, const void *q, size_t bytes) {  \
		type *restrict a = p;                                      \
		const type *restrict b = q;                                \
		for (size_t i = 0; i < bytes / sizeof(type); i++)          \
			a[i] = expression;                                 \
	}

FOLD(sum_float32, float, a[i] + b[i])
FOLD(sum_float64, double, a[i] + b[i])
FOLD(sum_int32, uint32_t, a[i] + b[i])
FOLD(sum_int64, uint64_t, a[i] + b[i])
FOLD(min_float32, float, a[i] < b[i] ? a[i] : b[i])
FOLD(max_int32, int32_t, a[i] > b[i] ? a[i] : b[i])
FOLD(product_float32, float, a[i] * b[i])
FOLD(scale_float32, float, b[i] * 0.37f)

static inline float widen(uint16_t h) {
	uint32_t x = (uint32_t)h << 16;
	float f;
	memcpy(&f, &x, 4);
	return f;
}

static inline uint16_t narrow(float f) {
	uint32_t x;
	memcpy(&x, &f, 4);
	uint16_t r = (x + 0x7fff + (x >> 16 & 1)) >> 16;
	return (x & 0x7fffffff) > 0x7f800000 ? (x | 0x400000) >> 16 : r;
}

FOLD(sum_bfloat16, uint16_t, narrow(widen(a[i]) + widen(b[i])))
FOLD(sum_float16, _Float16, (_Float16)((float)a[i] + (float)b[i]))

NOINLINE static void copy(void *p, const void *q, size_t bytes) { memcpy(p, q, bytes); }

static const struct {
	const char *name;
	void (*run)(void *, const void *, size_t);
} loops[] = {
	{"sum float32", sum_float32},   {"sum float64", sum_float64}, {"sum int32", sum_int32},
	{"sum int64", sum_int64},       {"min float32", min_float32}, {"max int32", max_int32},
	{"product float32", product_float32}, {"scale float32", scale_float32}, {"sum bfloat16", sum_bfloat16},
	{"sum float16", sum_float16},   {"copy", copy},
};

int main(void) {
	char line[256], name[128];
	while (fgets(line, sizeof line, stdin)) {
		size_t bytes, calls;
		if (sscanf(line, "%127[^,],%zu,%zu", name, &bytes, &calls) != 3)
			return 2;
		size_t k = 0;
		while (k < sizeof loops / sizeof *loops && strcmp(loops[k].name, name))
			k++;
		double ns = -1; // no such loop
		if (k < sizeof loops / sizeof *loops) {
			char *a = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), *b = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
			memset(a, 0, bytes);
			memset(b, 0, bytes);
			struct timespec from, to;
			loops[k].run(a, b, bytes);
			clock_gettime(CLOCK_MONOTONIC, &from);
			for (size_t i = 0; i < calls; i++)
				loops[k].run(a, b, bytes);
			clock_gettime(CLOCK_MONOTONIC, &to);
			ns = ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / calls;
			free(a);
			free(b);
		}
		printf("%.1f\n", ns);
		fflush(stdout);
	}
	return 0;
}
