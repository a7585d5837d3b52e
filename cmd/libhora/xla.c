// Collectives inside programs that XLA compiled, by its typed foreign function interface: no header of XLA's is
// included and nothing of it is linked. What stands here of its structures has been the same in every release since
// 0.5.0 (those before: xla_text.c); what has not, the interface's version and the place of a function in its table, is
// read from jaxlib's own header (hora.jax).
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "xla.h"

typedef struct extension {
    size_t size;
    int type;
    struct extension *next;
} extension;

typedef struct {
    size_t size;
    extension *first;
    int major, minor;
} version;

typedef struct {
    extension base;
    struct {
        size_t size;
        version version;
        uint32_t traits;
    } *about;
} metadata; // an extension of type 1: XLA asks what the handler is

typedef struct {
    size_t size;
    extension *first;
    int dtype;
    void *data;
    int64_t rank, *dims;
} buffer;

typedef struct {
    const char *text;
    size_t n;
} span;

typedef struct {
    int dtype;
    size_t n;
    int64_t *data;
} numbers; // an attribute that is an array

typedef struct {
    size_t size;
    extension *first;
    const char *message;
    int code;
} failure;

typedef struct {
    size_t size;
    extension *first;
    version version;
    const void *internal;
    void *functions[];
} api;

typedef struct {
    size_t size;
    extension *first;
    int64_t n;
    int *types;
    buffer **at;
} buffers;

typedef struct {
    size_t size;
    extension *first;
    const api *api;
    void *context;
    int stage;
    buffers args, rets;
    struct {
        size_t size;
        extension *first;
        int64_t n;
        int *types;
        span **names;
        void **at;
    } attrs;
} frame;

enum { EXECUTE = 3, TOKEN = 17, ARRAY = 1, STRING = 4 };

// Element types: XLA's number → hora's.
static const uint8_t types[] = {[1] = 1, [2] = 3, [3] = 5, [4] = 7, [5] = 9, [6] = 2, [7] = 4, [8] = 6, [9] = 8, [10] = 10, [11] = 12,
                                [12] = 13, [15] = 14, [16] = 11, [18] = 15, [19] = 17, [20] = 16};

static uint32_t minor, create;

int32_t hora_xla_open(uint32_t interface_minor, uint32_t place) {
    minor = interface_minor;
    create = place;
    return 0;
}

// absl's codes for hora's kinds.
static int code(int32_t kind) {
    switch (kind) {
    case HORA_ARGUMENT:
    case HORA_MISMATCH: return 3;
    case HORA_DEADLINE: return 4;
    case HORA_NOT_INITIALIZED:
    case HORA_CLOSED:
    case HORA_FORKED: return 9;
    case HORA_PEER_LOST: return 10;
    }
    return 13;
}

static void *fail(const frame *f) {
    int32_t kind = hora_last_kind();
    failure e = {offsetof(failure, code) + sizeof(int), NULL, libhora_bridge_told(), code(kind)};
    return ((void *(*)(failure *))f->api->functions[create])(&e);
}

static void *wrong(const frame *f, const char *text) {
    libhora_xla_wrong(text);
    return fail(f);
}

static uint64_t count(const buffer *b) {
    uint64_t n = 1;
    for (int64_t i = 0; i < b->rank; i++) n *= (uint64_t)b->dims[i];
    return n;
}

enum { FEW = 32 };

// run hands the arrays over without the token that orders, which comes first on both sides.
static void *run(const frame *f, const int64_t *call, const span *name) {
    int64_t skip = f->args.n && f->args.at[0]->dtype == TOKEN;
    int64_t n = f->args.n - skip;
    if (f->rets.n - skip != n && n > 0) return wrong(f, "run compiled operation: it has another number of results than of arguments; please report this");
    xla_array few[FEW], *arrays = n > FEW ? malloc((size_t)n * sizeof *arrays) : few;
    if (!arrays) return wrong(f, "run compiled operation: out of memory");
    for (int64_t i = 0; i < n; i++) {
        const buffer *in = f->args.at[i + skip], *out = f->rets.at[i + skip];
        uint8_t dtype = in->dtype >= 0 && (size_t)in->dtype < sizeof types ? types[in->dtype] : 0;
        arrays[i] = (xla_array){.dtype = dtype, .send = in->data, .recv = out->data, .recv_count = count(out),
                                .dims = in->dims, .rank = in->rank};
    }
    int32_t bad = libhora_xla_run(call, 0, name ? name->text : "", name ? name->n : 0, arrays, n);
    if (arrays != few) free(arrays);
    return bad ? fail(f) : NULL;
}

void *hora_xla(void *call_frame) {
    frame *f = call_frame;
    if (f->first && f->first->type == 1) {
        metadata *m = (metadata *)f->first;
        m->about->version.major = 0;
        m->about->version.minor = (int)minor;
        m->about->traits = 0;
        return NULL;
    }
    if (f->stage != EXECUTE) return NULL;
    if (libhora_enter() < 0) return fail(f);
    const numbers *call = NULL;
    const span *name = NULL;
    for (int64_t i = 0; i < f->attrs.n; i++) {
        const span *k = f->attrs.names[i];
        if (k->n == 4 && !memcmp(k->text, "call", 4) && f->attrs.types[i] == ARRAY) call = f->attrs.at[i];
        if (k->n == 4 && !memcmp(k->text, "name", 4) && f->attrs.types[i] == STRING) name = f->attrs.at[i];
    }
    if (!call || call->n != CALL_FIELDS) return wrong(f, "run compiled operation: it was made by another version of hora; trace the program again");
    if (call->data[CALL_KIND] >= CALL_RANK) {
        int32_t bad = libhora_xla_answer(call->data, f->rets.at[f->rets.n - 1]->data);
        return bad ? fail(f) : NULL;
    }
    return run(f, call->data, name);
}
