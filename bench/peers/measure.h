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
#include <sys/resource.h>
#include <time.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

// The data: whole numbers from 1 to PERIOD, other ones at each rank, index and turn, whose
// sums over a few ranks are exact in float32. The period is a prime, so that no block of a
// power of two, which is how data are cut, holds what another one should.
#define PERIOD 251

static float pattern(int rank, size_t i, int turn) {
    return (float)((i * 7 + (size_t)(turn + 1000) * 13 + (size_t)rank * 101) % PERIOD + 1);
}

static void fill(float *x, size_t n, size_t first, int rank, int turn) {
    size_t head = n < PERIOD ? n : PERIOD;
    for (size_t i = 0; i < head; i++) x[i] = pattern(rank, first + i, turn);
    for (size_t i = head; i < n; i++) x[i] = x[i - PERIOD];
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
#ifdef PLANTED
    return 4;
#endif
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

// A test that compiles with PLANTED plants a fault, which the check has to see: "nothing"
// leaves the call out, the others spoil its result.
#ifdef PLANTED
static int planted(const char *fault) {
    const char *p = getenv("PLANTED");
    return p && !strcmp(p, fault);
}

static void spoil(float *x, size_t n) {
    size_t half = n / 2;
    for (size_t i = 0; planted("divisor") && i < n; i++) x[i] /= 2;
    for (size_t i = 0; planted("swap") && i < half; i++) {
        float kept = x[i];
        x[i] = x[half + i];
        x[half + i] = kept;
    }
}
#else
#define planted(fault) 0
#define spoil(x, n) ((void)0)
#endif

// What "waiting" measures: how long one rank is kept waiting, and how often.
#define WAITS 3
#define WAIT_US 500000.0

static double processor_us(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void late(void) {
    struct timespec t = {0, (long)(WAIT_US * 1e3)};
    nanosleep(&t, NULL);
}

// own_kib is this process's memory in KiB less that of its arrays; what ranks share counts
// once, a part at each.
static double own_kib(size_t arrays) {
    double pss = 0;
    char line[256];
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Pss: %lf kB", &pss) == 1) break;
    if (f) fclose(f);
    pss -= (double)arrays / 1024;
    return pss > 1 ? pss : 1;
}

#endif
