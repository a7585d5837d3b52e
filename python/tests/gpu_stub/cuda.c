// A libcuda.so.1 for tests: "device" memory is host memory, every stream is a thread that does its work in order and
// late, events are what CUDA's are. A missing wait shows as a wrong result. Calls are written to the file STUB_LOG.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_READY = 600, INVALID_CONTEXT = 201, LAUNCH_FAILED = 719 };

typedef struct {
    int id;
    uint64_t recorded, done;
} event;

typedef struct item {
    struct item *next;
    void (*fn)(void *);
    void *arg;
    event *e;
    uint64_t generation;
    int waits;
} item;

typedef struct {
    int id;
    item *first, **last;
    uint64_t put, taken;
} stream;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t log_mu = PTHREAD_MUTEX_INITIALIZER;
static int streams, events;
static stream legacy;
static __thread int context; // 1: the GPU's is current

void stub_log(const char *form, ...) {
    const char *path = getenv("STUB_LOG");
    if (!path) return;
    va_list a;
    va_start(a, form);
    pthread_mutex_lock(&log_mu);
    FILE *f = fopen(path, "a");
    vfprintf(f, form, a);
    fputc('\n', f);
    fclose(f);
    pthread_mutex_unlock(&log_mu);
    va_end(a);
}

static int fails(const char *name) {
    const char *f = getenv("STUB_CUDA_FAIL");
    return f && !strcmp(f, name) ? LAUNCH_FAILED : 0;
}

static void *work(void *arg) {
    stream *s = arg;
    pthread_mutex_lock(&mu);
    for (;;) {
        while (!s->first) pthread_cond_wait(&cond, &mu);
        item *i = s->first;
        if (!(s->first = i->next)) s->last = &s->first;
        if (i->waits) {
            while (i->e->done < i->generation) pthread_cond_wait(&cond, &mu);
        } else if (i->e) {
            i->e->done = i->generation;
        } else {
            pthread_mutex_unlock(&mu);
            i->fn(i->arg);
            pthread_mutex_lock(&mu);
        }
        s->taken++;
        pthread_cond_broadcast(&cond);
        free(i);
    }
    return NULL;
}

static void begin(stream *s) {
    s->id = streams++;
    s->last = &s->first;
    pthread_t t;
    pthread_create(&t, NULL, work, s);
    pthread_detach(t);
}

static stream *of(void *p) {
    if (p) return p;
    if (!legacy.last) begin(&legacy);
    return &legacy;
}

static void put(stream *s, item i) { // mu is held
    item *n = malloc(sizeof *n);
    *n = i;
    n->next = NULL;
    *s->last = n;
    s->last = &n->next;
    s->put++;
    pthread_cond_broadcast(&cond);
}

// ---- for the tests and the NCCL of the tests

void stub_enqueue(void *s, void (*fn)(void *), void *arg) {
    pthread_mutex_lock(&mu);
    put(of(s), (item){.fn = fn, .arg = arg});
    pthread_mutex_unlock(&mu);
}

void *stub_stream(void) {
    stream *s = calloc(1, sizeof *s);
    pthread_mutex_lock(&mu);
    begin(s);
    pthread_mutex_unlock(&mu);
    return s;
}

int stub_number(void *s) { return of(s)->id; }

void stub_sync(void *p) {
    pthread_mutex_lock(&mu);
    stream *s = of(p);
    uint64_t all = s->put;
    while (s->taken < all) pthread_cond_wait(&cond, &mu);
    pthread_mutex_unlock(&mu);
}

typedef struct {
    float *at;
    uint64_t n;
    float value;
    int ms;
} filling;

static void do_fill(void *arg) {
    filling *f = arg;
    usleep(f->ms * 1000);
    for (uint64_t i = 0; i < f->n; i++) f->at[i] = f->value;
    free(f);
}

// Slowly writes value everywhere, as a backward pass would.
void stub_fill(void *s, float *at, uint64_t n, float value, int ms) {
    filling *f = malloc(sizeof *f);
    *f = (filling){at, n, value, ms};
    stub_enqueue(s, do_fill, f);
}

// ---- CUDA

int cuInit(unsigned flags) { return fails("cuInit"); }
int cuDeviceGet(int *d, int n) {
    *d = n;
    return n < 8 ? 0 : 101;
}
int cuDeviceGetPCIBusId(char *to, int room, int d) {
    const char *bus = getenv("STUB_BUS");
    snprintf(to, room, "%s", bus ? bus : "0000:01:00.0");
    return 0;
}
int cuDevicePrimaryCtxRetain(void **c, int d) {
    *c = (void *)(intptr_t)(d + 1);
    stub_log("retain");
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int d) {
    stub_log("release");
    return 0;
}
int cuCtxSetCurrent(void *c) {
    context = c != NULL;
    return 0;
}
int cuCtxPushCurrent_v2(void *c) {
    context++;
    return 0;
}
int cuCtxPopCurrent_v2(void **c) {
    context--;
    return 0;
}
int cuStreamCreate(void **s, unsigned flags) {
    if (!context) return INVALID_CONTEXT;
    *s = stub_stream();
    stub_log("stream %d", ((stream *)*s)->id);
    return 0;
}
int cuStreamDestroy_v2(void *s) {
    stub_log("close stream %d", ((stream *)s)->id);
    return 0;
}
int cuEventCreate(void **e, unsigned flags) {
    if (!context) return INVALID_CONTEXT;
    event *n = calloc(1, sizeof *n);
    n->id = __atomic_add_fetch(&events, 1, __ATOMIC_SEQ_CST);
    *e = n;
    return 0;
}
int cuEventDestroy_v2(void *e) { return 0; }
int cuEventRecord(void *p, void *s) {
    if (!context) return INVALID_CONTEXT;
    event *e = p;
    pthread_mutex_lock(&mu);
    stub_log("record %d on %d", e->id, of(s)->id);
    put(of(s), (item){.e = e, .generation = ++e->recorded});
    pthread_mutex_unlock(&mu);
    return fails("cuEventRecord");
}
int cuStreamWaitEvent(void *s, void *p, unsigned flags) {
    if (!context) return INVALID_CONTEXT;
    event *e = p;
    pthread_mutex_lock(&mu);
    stub_log("%d awaits %d", of(s)->id, e->id);
    if (e->recorded) put(of(s), (item){.e = e, .generation = e->recorded, .waits = 1});
    pthread_mutex_unlock(&mu);
    return 0;
}
int cuEventQuery(void *p) {
    event *e = p;
    pthread_mutex_lock(&mu);
    int answer = e->done >= e->recorded ? 0 : NOT_READY;
    pthread_mutex_unlock(&mu);
    return answer;
}

static struct {
    uint64_t at, bytes;
} pinned[64];

static int is_pinned(uint64_t at) {
    for (int i = 0; i < 64; i++)
        if (at >= pinned[i].at && at < pinned[i].at + pinned[i].bytes) return 1;
    return 0;
}

typedef struct {
    void *to, *from;
    size_t n;
} copying;

static void do_copy(void *arg) {
    copying *c = arg;
    usleep(200);
    memcpy(c->to, c->from, c->n);
    free(c);
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t n, void *s) {
    if (!context) return INVALID_CONTEXT;
    int code = fails("cuMemcpyAsync");
    const char *what = is_pinned(to) ? "down" : is_pinned(from) ? "up" : "pageable";
    stub_log("copy %s %zu on %d", what, n, of(s)->id);
    if (code) return code;
    copying *c = malloc(sizeof *c);
    *c = (copying){(void *)to, (void *)from, n};
    stub_enqueue(s, do_copy, c);
    return 0;
}
int cuMemHostRegister_v2(void *at, size_t n, unsigned flags) {
    int code = fails("cuMemHostRegister");
    stub_log("pin %zu", n);
    for (int i = 0; !code && i < 64; i++)
        if (!pinned[i].at) {
            pinned[i].at = (uint64_t)at;
            pinned[i].bytes = n;
            break;
        }
    return code;
}
int cuMemHostUnregister(void *at) {
    stub_log("unpin");
    for (int i = 0; i < 64; i++)
        if (pinned[i].at == (uint64_t)at) pinned[i].at = pinned[i].bytes = 0;
    return 0;
}
int cuGetErrorString(int code, const char **text) {
    *text = code == LAUNCH_FAILED ? "unspecified launch failure" : code == 101 ? "invalid device ordinal" : "an error";
    return 0;
}
