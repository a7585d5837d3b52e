// Collectives inside programs that XLA compiled, by its foreign function interface: no header of XLA's is included and
// nothing of it is linked. What stands here of its structures has been the same in every release since 0.5.0; what has
// not, the interface's version and the place of a function in its table, is read from jaxlib's own header (hora.jax).
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"
#include "lib.h"

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
    libhora_fail(HORA_INTERNAL, -1, text, strlen(text));
    return fail(f);
}

// What hora.jax writes into the attribute "call".
enum { KIND, OP, GROUP, ROOT, PRE, POST, FIELDS };
enum { RANK = 100, SIZE = 101 }; // kinds beside hora.h's: one int32 is answered

static uint64_t count(const buffer *b) {
    uint64_t n = 1;
    for (int64_t i = 0; i < b->rank; i++) n *= (uint64_t)b->dims[i];
    return n;
}

static double real(int64_t bits) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static void *answer(const frame *f, int64_t kind, uint64_t number) {
    int64_t group = libhora_bridge_find(number);
    int32_t rank, size;
    if (group < 0 || libhora_bridge_place((uint64_t)group, &rank, &size) < 0) return fail(f);
    *(int32_t *)f->rets.at[f->rets.n - 1]->data = kind == RANK ? rank : size; // behind the token
    return NULL;
}

enum { FEW = 32, NAME = 160 };

// run makes one operation of each argument and its result, and runs them.
static void *run(const frame *f, const int64_t *call, const span *name) {
    int64_t skip = f->args.n && f->args.at[0]->dtype == TOKEN; // the token that orders comes first, on both sides
    int64_t n = f->args.n - skip;
    if (f->rets.n - skip != n && n > 0) return wrong(f, "run compiled operation: it has another number of results than of arguments; please report this");
    hora_op few[FEW], *ops = few;
    char few_names[FEW][NAME], (*names)[NAME] = few_names;
    int64_t made = n ? n : 1; // a barrier has no arrays
    if (made > FEW) {
        ops = malloc((size_t)made * sizeof *ops);
        names = malloc((size_t)made * sizeof *names);
    }
    void *bad = NULL;
    if (!ops || !names) {
        bad = wrong(f, "run compiled operation: out of memory");
    } else {
        memset(ops, 0, (size_t)made * sizeof *ops);
        for (int64_t i = 0; i < made; i++) {
            hora_op *o = &ops[i];
            o->size = sizeof *o;
            o->kind = (uint8_t)call[KIND];
            o->op = (uint8_t)call[OP];
            o->root = (int32_t)call[ROOT];
            o->prescale = real(call[PRE]);
            o->postscale = real(call[POST]);
            if (name && name->n) {
                // The number of arrays is in each name, and names are compared: calls of different lengths are told apart.
                if (made > 1) snprintf(names[i], NAME, "%.*s_%dof%d", (int)name->n, name->text, (int)i + 1, (int)made);
                else snprintf(names[i], NAME, "%.*s", (int)name->n, name->text);
                o->name = names[i];
            }
            if (!n) continue;
            const buffer *in = f->args.at[i + skip], *out = f->rets.at[i + skip];
            if (in->dtype < 0 || (size_t)in->dtype >= sizeof types || !types[in->dtype]) {
                bad = wrong(f, "run compiled operation: its element type is not one that hora sums");
                break;
            }
            o->dtype = types[in->dtype];
            o->send = in->data;
            o->recv = out->data;
            o->count = count(in);
            o->recv_count = count(out);
            o->shape = in->dims;
            o->ndim = (uint32_t)in->rank;
        }
        if (!bad && libhora_bridge_run((uint64_t)call[GROUP], ops, (uint64_t)made) < 0) bad = fail(f);
    }
    if (ops != few) free(ops);
    if (names != few_names) free(names);
    return bad;
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
    if (!call || call->n != FIELDS) return wrong(f, "run compiled operation: it was made by another version of hora; trace the program again");
    if (call->data[KIND] >= RANK) return answer(f, call->data[KIND], (uint64_t)call->data[GROUP]);
    return run(f, call->data, name);
}
