// Custom calls of XLA's older interface, as TensorFlow has it and jaxlib before 0.5.0: the handler gets addresses and
// one text, which hora.jax and hora.tensorflow write. XLA hands over a token like any other operand there, which the
// typed interface of those releases ends the process for. No function that sets a call's failure is exported, so it is
// written where the class keeps it; whether XLA reads it there is tried before anything relies on it: by tf_xla.c, and
// by hora.jax in another process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "xla.h"

static void *(*allocate)(size_t); // operator new: XLA gives the text back by operator delete

int libhora_xla_text_open(void) {
    if (!allocate) *(void **)&allocate = dlsym(RTLD_DEFAULT, "_Znwm");
    if (!allocate) { // Python loads modules, and what they need, out of each other's sight
        void *lib = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_NOLOAD);
        if (lib) *(void **)&allocate = dlsym(lib, "_Znwm");
    }
    return allocate ? 0 : -1;
}

void libhora_xla_tell(xla_status *s) {
    const char *text = libhora_bridge_told();
    size_t n = strlen(text);
    char *at = n < sizeof s->message.own ? s->message.own : allocate(n + 1);
    memcpy(at, text, n + 1);
    s->message.text = at;
    s->message.n = n;
    if (at != s->message.own) memcpy(s->message.own, &n, sizeof n); // its capacity
    s->set = 1;
}

enum { MOST = 1 << 20, DIMS = 64 };

typedef struct {
    xla_array array;
    int64_t dims[DIMS];
} described;

static int32_t strange(void) {
    return libhora_xla_wrong("run compiled operation: it was made by another version of hora; trace the program again");
}

static int32_t no_memory(void) { return libhora_xla_wrong("run compiled operation: out of memory"); }

static int32_t refuse(const char *text) {
    libhora_fail(HORA_ARGUMENT, -1, text, strlen(text));
    return -1;
}

// read fills n arrays from a line of numbers: of each its element type, the elements of its result, how many
// dimensions, and those.
static int32_t read(char *at, described *all, xla_array *arrays, int64_t n, void **results, const void **in) {
    for (int64_t i = 0; i < n; i++) {
        int64_t dtype = strtoll(at, &at, 10), recv = strtoll(at, &at, 10), rank = strtoll(at, &at, 10);
        if (rank < 0) return strange();
        if (rank > DIMS) return refuse("run compiled operation: an array has more than 64 dimensions; reshape it before and after");
        for (int64_t d = 0; d < rank; d++) all[i].dims[d] = strtoll(at, &at, 10);
        arrays[i] = (xla_array){.dtype = (uint8_t)dtype, .send = in[i], .recv = results[i],
                                .recv_count = (uint64_t)recv, .dims = all[i].dims, .rank = rank};
    }
    return 0;
}

// run makes the call that stands in a text whose first line ends at name, and sets n.
static int32_t run(char *text, const char *name, int64_t least, void **results, const void **in, int64_t *n) {
    int64_t head[CALL_FIELDS + 2];
    for (int i = 0; i < CALL_FIELDS + 2; i++) head[i] = strtoll(text, &text, 10);
    *n = head[CALL_FIELDS + 1];
    if (*n < 0 || *n > MOST) return strange();
    if (*n < least) return refuse("run compiled operation: it has no tensors; leave it out");
    if (head[CALL_KIND] >= CALL_RANK) return libhora_xla_answer(head, results[0]);
    described *all = calloc((size_t)*n + 1, sizeof *all);
    xla_array *arrays = calloc((size_t)*n + 1, sizeof *arrays);
    int32_t bad = all && arrays ? read(text, all, arrays, *n, results, in) : no_memory();
    if (!bad) bad = libhora_xla_run(head, (uint8_t)head[CALL_FIELDS], name, strlen(name), arrays, *n);
    free(arrays), free(all);
    return bad;
}

int64_t libhora_xla_text(void **results, const void **in, const char *opaque, size_t length, int64_t least, xla_status *s) {
    // The call, flags, n; the n arrays; a new line, the name.
    char *text = strndup(opaque, length), *end = text ? strchr(text, '\n') : NULL;
    int64_t n = 0;
    int32_t bad;
    if (end) {
        *end = 0;
        bad = run(text, end + 1, least, results, in, &n);
    } else {
        bad = text ? strange() : no_memory();
    }
    if (bad) libhora_xla_tell(s);
    free(text);
    return n;
}

// ---- jaxlib's programs. XLA of 0.4.38 runs what gets a failed program's results, its token too, as if there were any:
// a training would go on with what lay in that memory. So what follows a failure here fails as well, until it is said
// that the failure is known.

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; // guards what follows
static char *failed;                                      // what the first one said; NULL: none since
static int32_t failed_kind, failed_rank;

static void forget(void) {
    pthread_mutex_lock(&guard);
    free(failed);
    failed = NULL;
    pthread_mutex_unlock(&guard);
}

// remember notes this thread's failure, unless there was one.
static void remember(void) {
    pthread_mutex_lock(&guard);
    if (!failed) {
        const char *text = hora_last_error();
        if (asprintf(&failed, "%.800s (in an earlier call: hora.jax.recover() lets the next ones run)", text) < 0) failed = NULL;
        failed_kind = hora_last_kind();
        failed_rank = hora_last_rank();
    }
    pthread_mutex_unlock(&guard);
}

// follows reports whether a call follows one that failed, whose failure is this thread's then.
static int follows(void) {
    pthread_mutex_lock(&guard);
    int yes = failed != NULL;
    if (yes) libhora_fail(failed_kind, failed_rank, failed, strlen(failed));
    pthread_mutex_unlock(&guard);
    return yes;
}

int32_t hora_xla_text_open(void) {
    if (libhora_enter() < 0) return -1;
    forget();
    if (libhora_xla_text_open() == 0) return 0;
    return libhora_xla_wrong("compile hora's operations: this XLA has no C++ library of GNU's, in whose strings it takes failures");
}

void hora_xla_text(void *out, const void **in, hora_str text, uint64_t length, void *status) {
    if (libhora_enter() < 0 || follows()) {
        libhora_xla_tell(status);
        return;
    }
    // The token that orders comes first, on both sides. A barrier's is all there is, and then out is no list.
    libhora_xla_text((void **)out + 1, in + 1, text, length, 0, status);
    if (((xla_status *)status)->set) remember();
}
