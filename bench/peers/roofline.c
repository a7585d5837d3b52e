// The peer "roofline": what the memory of this machine allows an allreduce of two ranks
// that share their arrays. Two bound threads each read their half of both arrays and
// store the sum to both; each array is rewritten by its owner before each pass.
// Usage: roofline BYTES[,BYTES…]; prints: result roofline BYTES CALLS MICROSECONDS ok|wrong
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "measure.h"

#if defined(__x86_64__)
#define relax() __builtin_ia32_pause()
#else
#define relax() __asm__ volatile("yield")
#endif

static float *array[2];
static size_t elements;
static int calls;
static double times[2][MAX_CALLS];
static atomic_int arrived;
static int bad[2];
static int processor[2]; // of those that this program may run on, the first two

// meet waits until both threads have called it n times; it spins, as ranks do.
static void meet(int n) {
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < 2 * n) relax();
}

static void sum_half(size_t from, size_t to) {
    float *restrict a = array[0], *restrict b = array[1];
    for (size_t i = from; i < to; i++) {
        float s = a[i] + b[i];
        a[i] = s;
        b[i] = s;
    }
}

static void *work(void *arg) {
    int me = (int)(size_t)arg, met = 0;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor[me], &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    size_t half = elements / 2, from = me ? half : 0, to = me ? elements : half;
    for (int turn = -WARM_CALLS(calls); turn < calls; turn++) {
        fill(array[me], elements, 0, me, turn);
        meet(++met);
        double t = now_us();
        meet(++met);
        if (!planted("nothing")) sum_half(from, to);
        meet(++met);
        t = now_us() - t;
        if (me == 0) spoil(array[1], elements);
        meet(++met);
        if (turn >= 0) times[me][turn] = t;
        for (size_t i = 0; i < elements; i += check_stride(elements, turn, calls))
            if (array[me][i] != pattern_sum(2, i, turn)) bad[me] = 1;
        meet(++met); // nobody rewrites what the other still checks
    }
    return NULL;
}

static int find_processors(void) {
    cpu_set_t all;
    int found = 0;
    if (sched_getaffinity(0, sizeof all, &all)) return -1;
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET(i, &all)) processor[found++] = i;
    return found == 2 ? 0 : -1;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: roofline BYTES[,BYTES...]\n");
        return 2;
    }
    if (find_processors()) { // on one, two threads that spin would wait a turn of the scheduler each time
        fprintf(stderr, "it takes two processors, and may run on one only\n");
        return 3;
    }
    for (char *size = strtok(argv[1], ","); size; size = strtok(NULL, ",")) {
        size_t bytes = strtoull(size, NULL, 10);
        elements = bytes / sizeof(float);
        calls = calls_for(bytes);
        atomic_store(&arrived, 0);
        bad[0] = bad[1] = 0;
        for (int i = 0; i < 2; i++) array[i] = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        pthread_t t[2];
        for (size_t i = 0; i < 2; i++) pthread_create(&t[i], NULL, work, (void *)i);
        for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
        double a = median(times[0], calls), b = median(times[1], calls);
        printf("result roofline %zu %d %.4f %s\n", bytes, calls, a > b ? a : b, bad[0] || bad[1] ? "wrong" : "ok");
        fflush(stdout);
        free(array[0]);
        free(array[1]);
    }
    return 0;
}
