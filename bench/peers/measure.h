// What both peer programs share: the clock, the pattern of the data and its check, and
// how many times an operation is run. The rules are those of hora's own ranks: every
// rank rewrites its input before each timed call, an untimed barrier then brings the
// ranks together, each call is timed alone, a rank reports the median of its calls, and
// the slowest rank's median counts.
#ifndef HORA_BENCH_MEASURE_H
#define HORA_BENCH_MEASURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

// Small whole numbers: sums over a few ranks are exact in float32.
static float pattern(int rank, size_t i, int turn) {
    return (float)((int)((i * 7 + (size_t)turn * 3) & 15) + rank + 1);
}

static void fill(float *x, size_t n, size_t first, int rank, int turn) {
    for (size_t i = 0; i < n; i++) x[i] = pattern(rank, first + i, turn);
}

static float pattern_sum(int ranks, size_t i, int turn) {
    float s = 0;
    for (int r = 0; r < ranks; r++) s += pattern(r, i, turn);
    return s;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

// Calls per size: hora's ranks use the same table (bench/plan.go).
static int calls_for(size_t bytes) {
    if (bytes <= 4096) return 2000;
    if (bytes <= 65536) return 600;
    if (bytes <= 1048576) return 120;
    if (bytes <= 8388608) return 30;
    return 9;
}

#define MAX_CALLS 2000
#define WARM_CALLS(n) ((n) / 10 + 2)

// Which elements a check looks at. A check must be short: ranks that have drifted apart
// while they checked would measure each other's delay. So the first and the last turn
// look at every element, the others at some sixty.
static size_t check_stride(size_t n, int turn, int calls) {
    return turn <= 0 || turn == calls - 1 || n <= 64 ? 1 : n / 61;
}

#endif
