// Collectives as operations of TensorFlow, by its C interface found with dlsym: no header of TensorFlow's is included and
// nothing of it is linked. They are registered from inside tf.load_op_library (see tf_stub.c), stateful, so that a graph
// runs them one at a time in program order, and their kernels run on the thread that TensorFlow calls them on: an operation
// of a few bytes takes less than a hand-over.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bridge.h"
#include "lib.h"

typedef struct tf_status tf_status;
typedef struct tf_tensor tf_tensor;
typedef struct tf_builder tf_builder; // of an operation's definition
typedef struct tf_kernel tf_kernel;
typedef struct tf_making tf_making; // TF_OpKernelConstruction
typedef struct tf_running tf_running; // TF_OpKernelContext
typedef struct tf_shapes tf_shapes; // TF_ShapeInferenceContext
typedef struct tf_shape tf_shape;

#define FUNCTIONS(F)                                                                                                        \
    F(tf_status *, status, "TF_NewStatus", (void))                                                                          \
    F(void, status_close, "TF_DeleteStatus", (tf_status *))                                                                 \
    F(void, status_set, "TF_SetStatus", (tf_status *, int, const char *))                                                   \
    F(int, code, "TF_GetCode", (const tf_status *))                                                                         \
    F(const char *, message, "TF_Message", (const tf_status *))                                                             \
    F(tf_builder *, define, "TF_NewOpDefinitionBuilder", (const char *))                                                    \
    F(void, attr, "TF_OpDefinitionBuilderAddAttr", (tf_builder *, const char *))                                            \
    F(void, in, "TF_OpDefinitionBuilderAddInput", (tf_builder *, const char *))                                             \
    F(void, out, "TF_OpDefinitionBuilderAddOutput", (tf_builder *, const char *))                                           \
    F(void, stateful, "TF_OpDefinitionBuilderSetIsStateful", (tf_builder *, bool))                                          \
    F(void, shapes, "TF_OpDefinitionBuilderSetShapeInferenceFunction", (tf_builder *, void (*)(tf_shapes *, tf_status *)))  \
    F(void, defined, "TF_RegisterOpDefinition", (tf_builder *, tf_status *))                                                \
    F(tf_shape *, shape, "TF_NewShapeHandle", (void))                                                                       \
    F(tf_shape *, scalar, "TF_ShapeInferenceContextScalar", (tf_shapes *))                                                  \
    F(int64_t, shapes_in, "TF_ShapeInferenceContextNumInputs", (tf_shapes *))                                               \
    F(void, shape_in, "TF_ShapeInferenceContextGetInput", (tf_shapes *, int, tf_shape *, tf_status *))                      \
    F(void, shape_out, "TF_ShapeInferenceContextSetOutput", (tf_shapes *, int, tf_shape *, tf_status *))                    \
    F(void, shape_unknown, "TF_ShapeInferenceContextSetUnknownShape", (tf_shapes *, tf_status *))                           \
    F(void, shape_close, "TF_DeleteShapeHandle", (tf_shape *))                                                              \
    F(tf_kernel *, kernel, "TF_NewKernelBuilder",                                                                           \
      (const char *, const char *, void *(*)(tf_making *), void (*)(void *, tf_running *), void (*)(void *)))               \
    F(void, kernel_done, "TF_RegisterKernelBuilder", (const char *, tf_kernel *, tf_status *))                              \
    F(void, get_int, "TF_OpKernelConstruction_GetAttrInt64", (tf_making *, const char *, int64_t *, tf_status *))           \
    F(void, get_bool, "TF_OpKernelConstruction_GetAttrBool", (tf_making *, const char *, unsigned char *, tf_status *))        \
    F(void, get_float, "TF_OpKernelConstruction_GetAttrFloat", (tf_making *, const char *, float *, tf_status *))           \
    F(void, get_size, "TF_OpKernelConstruction_GetAttrSize", (tf_making *, const char *, int32_t *, int32_t *, tf_status *)) \
    F(void, get_text, "TF_OpKernelConstruction_GetAttrString", (tf_making *, const char *, char *, size_t, tf_status *))    \
    F(void, making_failed, "TF_OpKernelConstruction_Failure", (tf_making *, tf_status *))                                   \
    F(int, inputs, "TF_NumInputs", (tf_running *))                                                                          \
    F(void, input, "TF_GetInput", (tf_running *, int, tf_tensor **, tf_status *))                                           \
    F(tf_tensor *, forward, "TF_ForwardInputOrAllocateOutput",                                                              \
      (tf_running *, const int *, int, int, const int64_t *, int, int *, tf_status *))                                      \
    F(tf_tensor *, allocate, "TF_AllocateOutput", (tf_running *, int, int, const int64_t *, int, size_t, tf_status *))      \
    F(void, failed, "TF_OpKernelContext_Failure", (tf_running *, tf_status *))                                              \
    F(int, type, "TF_TensorType", (const tf_tensor *))                                                                      \
    F(int, dims, "TF_NumDims", (const tf_tensor *))                                                                         \
    F(int64_t, dim, "TF_Dim", (const tf_tensor *, int))                                                                     \
    F(int64_t, count, "TF_TensorElementCount", (const tf_tensor *))                                                         \
    F(size_t, bytes, "TF_TensorByteSize", (const tf_tensor *))                                                              \
    F(void *, data, "TF_TensorData", (const tf_tensor *))                                                                   \
    F(void, close, "TF_DeleteTensor", (tf_tensor *))

#define MEMBER(answer, name, symbol, arguments) answer(*name) arguments;
static struct {
    FUNCTIONS(MEMBER)
} tf;

// Element types: TensorFlow's number → hora's.
static const uint8_t types[24] = {[1] = 12, [2] = 13, [3] = 7, [4] = 2, [5] = 5, [6] = 3, [8] = 14, [9] = 9, [10] = 1,
                                  [14] = 11, [17] = 4, [18] = 15, [19] = 10, [22] = 6, [23] = 8};
#define TYPES "{float, double, int32, uint8, int16, int8, complex64, int64, bool, bfloat16, uint16, complex128, half, uint32, uint64}"
#define CALL "group: int = 0", "label: string = ''", "named: bool = false"

enum { MOST_DIMS = 254 };

// ---- failures

static int code(int32_t kind) {
    switch (kind) {
    case HORA_ARGUMENT:
    case HORA_MISMATCH: return 3; // InvalidArgumentError
    case HORA_DEADLINE: return 4; // DeadlineExceededError
    case HORA_NOT_INITIALIZED:
    case HORA_CLOSED:
    case HORA_FORKED: return 9; // FailedPreconditionError
    case HORA_PEER_LOST: return 10; // AbortedError
    }
    return 13; // InternalError
}

static void fail(tf_running *run, tf_status *s) {
    int32_t kind = hora_last_kind();
    tf.status_set(s, code(kind), libhora_bridge_told());
    tf.failed(run, s);
}

static void wrong(tf_running *run, tf_status *s, const char *text) {
    libhora_fail(HORA_ARGUMENT, -1, text, strlen(text));
    fail(run, s);
}

// ---- what a node of a graph says of its call

typedef struct {
    int64_t kind, op, group, root;
    float pre, post;
    char *label;
    unsigned char named; // matched by label, in any order: what a rank that has joined takes part in
} node;

static void *failed_making(tf_making *m, tf_status *s, node *n) {
    tf.making_failed(m, s);
    tf.status_close(s);
    if (n) free(n->label);
    free(n);
    return NULL;
}

static int read_label(tf_making *m, tf_status *s, node *n) {
    int32_t list, size = 0;
    tf.get_size(m, "label", &list, &size, s);
    if (tf.code(s)) return -1;
    n->label = calloc(1, (size_t)size + 1);
    if (n->label && size) tf.get_text(m, "label", n->label, (size_t)size, s);
    return n->label && !tf.code(s) ? 0 : -1;
}

static void *make(tf_making *m, int reduces) {
    tf_status *s = tf.status();
    node *n = calloc(1, sizeof *n);
    if (!n) return failed_making(m, s, n);
    tf.get_int(m, "group", &n->group, s);
    if (!tf.code(s) && reduces) {
        tf.get_int(m, "op", &n->op, s);
        if (!tf.code(s)) tf.get_float(m, "prescale", &n->pre, s);
        if (!tf.code(s)) tf.get_float(m, "postscale", &n->post, s);
    }
    if (!tf.code(s)) tf.get_bool(m, "named", &n->named, s);
    if (tf.code(s) || read_label(m, s, n) < 0) return failed_making(m, s, n);
    tf.status_close(s);
    return n;
}

static void *make_reducing(tf_making *m) { return make(m, 1); }
static void *make_moving(tf_making *m) { return make(m, 0); }

static void *make_each(tf_making *m) {
    node *n = make(m, 1);
    if (!n) return NULL;
    tf_status *s = tf.status();
    tf.get_int(m, "kind", &n->kind, s);
    if (!tf.code(s)) tf.get_int(m, "root", &n->root, s);
    if (tf.code(s)) return failed_making(m, s, n);
    tf.status_close(s);
    return n;
}

static void *make_place(tf_making *m) {
    node *n = make(m, 0);
    if (!n) return NULL;
    tf_status *s = tf.status();
    tf.get_int(m, "what", &n->kind, s);
    if (tf.code(s)) return failed_making(m, s, n);
    tf.status_close(s);
    return n;
}

static void drop(void *p) {
    node *n = p;
    if (n) free(n->label);
    free(n);
}

// ---- running

// prepare fills an operation with an input and what the node says; dims holds the input's.
static int prepare(const node *n, const tf_tensor *in, hora_op *o, int64_t *dims) {
    int type = tf.type(in), rank = tf.dims(in);
    if (type < 0 || type >= (int)(sizeof types) || !types[type] || rank > MOST_DIMS) return -1;
    for (int i = 0; i < rank; i++) dims[i] = tf.dim(in, i);
    *o = (hora_op){.size = sizeof *o, .kind = (uint8_t)n->kind, .op = (uint8_t)n->op, .dtype = types[type], .root = (int32_t)n->root,
                   .prescale = n->pre, .postscale = n->post, .send = tf.data(in), .count = (uint64_t)tf.count(in),
                   .shape = dims, .ndim = (uint32_t)rank, .name = n->label && *n->label ? n->label : NULL,
                   .flags = n->named ? HORA_NAMED : 0};
    return 0;
}

enum { NAME = 192 };

typedef struct {
    hora_op *ops;
    tf_tensor **in, **out;
    char (*names)[NAME];
    int64_t (*dims)[MOST_DIMS];
} batch;

// each runs what keeps its shape: allreduce and broadcast, of any number of tensors, in place where TensorFlow lets go of them.
static void each(void *p, tf_running *run) {
    node *n = p;
    tf_status *s = tf.status();
    int many = tf.inputs(run);
    batch b = {calloc((size_t)many, sizeof *b.ops), calloc((size_t)many, sizeof *b.in), calloc((size_t)many, sizeof *b.out),
               malloc((size_t)many * sizeof *b.names), malloc((size_t)many * sizeof *b.dims)};
    int bad = !b.ops || !b.in || !b.out || !b.names || !b.dims;
    if (bad) wrong(run, s, "run operation: out of memory");
    for (int i = 0; i < many && !bad; i++) {
        tf.input(run, i, &b.in[i], s);
        if ((bad = tf.code(s) != 0)) {
            tf.failed(run, s);
        } else if ((bad = prepare(n, b.in[i], &b.ops[i], b.dims[i]) < 0)) {
            wrong(run, s, "run operation: hora does not know this element type");
        } else {
            int from = -1;
            b.out[i] = tf.forward(run, &i, 1, i, b.dims[i], (int)b.ops[i].ndim, &from, s);
            if ((bad = tf.code(s) != 0)) tf.failed(run, s);
        }
        if (bad) break;
        b.ops[i].recv = tf.data(b.out[i]);
        b.ops[i].recv_count = b.ops[i].count;
        if (n->kind == 3 && b.ops[i].send != b.ops[i].recv) { // broadcast is in place: the root's goes along
            memcpy(b.ops[i].recv, b.ops[i].send, tf.bytes(b.in[i]));
            b.ops[i].send = b.ops[i].recv;
        }
        if (b.ops[i].name && many > 1) { // how many there are is in each name, and names are compared
            snprintf(b.names[i], NAME, "%.150s_%dof%d", n->label, i + 1, many);
            b.ops[i].name = b.names[i];
        }
    }
    if (!bad && libhora_bridge_run((uint64_t)n->group, b.ops, (uint64_t)many) < 0) fail(run, s);
    for (int i = 0; i < many && b.in && b.out; i++) {
        if (b.in[i]) tf.close(b.in[i]);
        if (b.out[i]) tf.close(b.out[i]);
    }
    free(b.ops), free(b.in), free(b.out), free(b.names), free(b.dims);
    tf.status_close(s);
}

// sized runs an operation whose result's rows only the ranks together know, and copies the result: TensorFlow has no way
// to be given memory here. counts are for the caller to read before it calls hora_release.
static int64_t sized(const node *n, tf_running *run, tf_status *s, const tf_tensor *in, hora_op *o, int64_t *dims, hora_outcome *left) {
    if (!o->ndim) dims[0] = 1, o->ndim = 1; // a number is one row
    uint64_t row = 1;
    for (uint32_t i = 1; i < o->ndim; i++) row *= (uint64_t)dims[i];
    o->flags |= HORA_SIZES;
    o->row = row;
    int64_t group = libhora_bridge_find((uint64_t)n->group);
    int64_t ticket = group < 0 ? -1 : hora_run((uint64_t)group, o);
    if (ticket < 0 || libhora_bridge_await(ticket) < 0 || hora_result((uint64_t)ticket, left) < 0) {
        fail(run, s);
        if (ticket > 0) hora_release((uint64_t)ticket);
        return -1;
    }
    int64_t total = 0;
    for (uint32_t i = 0; i < left->ncount; i++) total += left->counts[i];
    int64_t own = dims[0];
    dims[0] = row ? total / (int64_t)row : 0;
    tf_tensor *out = tf.allocate(run, 0, tf.type(in), dims, (int)o->ndim, (size_t)left->bytes, s);
    dims[0] = own;
    if (tf.code(s)) {
        tf.failed(run, s);
    } else {
        if (left->bytes) memcpy(tf.data(out), left->memory, left->bytes);
        tf.close(out);
    }
    if (left->buffer) hora_buffer_close(left->buffer);
    return ticket;
}

static void gather(void *p, tf_running *run) {
    node own = *(node *)p, *n = &own;
    own.kind = 4;
    tf_status *s = tf.status();
    tf_tensor *in = NULL;
    hora_op o;
    int64_t dims[MOST_DIMS];
    hora_outcome left = {.size = sizeof left};
    tf.input(run, 0, &in, s);
    if (tf.code(s)) {
        tf.failed(run, s);
    } else if (prepare(n, in, &o, dims) < 0) {
        wrong(run, s, "run allgather: hora does not know this element type");
    } else {
        int64_t ticket = sized(n, run, s, in, &o, dims, &left);
        if (ticket > 0) hora_release((uint64_t)ticket);
    }
    if (in) tf.close(in);
    tf.status_close(s);
}

static void exchange(void *p, tf_running *run) {
    node own = *(node *)p, *n = &own;
    own.kind = 6;
    tf_status *s = tf.status();
    tf_tensor *in = NULL, *splits = NULL, *received = NULL;
    int64_t dims[MOST_DIMS], *counts = NULL;
    hora_op o;
    hora_outcome left = {.size = sizeof left};
    int32_t rank, size;
    int64_t group = libhora_bridge_find((uint64_t)n->group);
    tf.input(run, 0, &in, s);
    if (!tf.code(s)) tf.input(run, 1, &splits, s);
    if (tf.code(s)) {
        tf.failed(run, s);
    } else if (group < 0 || libhora_bridge_place((uint64_t)group, &rank, &size) < 0) {
        fail(run, s);
    } else if (prepare(n, in, &o, dims) < 0 || !o.ndim) {
        wrong(run, s, "run alltoall: it needs a tensor of at least one dimension, of an element type that hora knows");
    } else if (tf.type(splits) != 3 || (tf.count(splits) && tf.count(splits) != size)) {
        wrong(run, s, "run alltoall: splits must be int32, one number of rows for each rank, or empty for equal parts");
    } else if (!tf.count(splits) && dims[0] % size) {
        wrong(run, s, "run alltoall: the rows cannot be divided evenly over the ranks; give splits");
    } else if (!(counts = malloc((size_t)size * sizeof *counts))) {
        wrong(run, s, "run alltoall: out of memory");
    } else {
        int64_t row = 1, sum = 0;
        for (uint32_t i = 1; i < o.ndim; i++) row *= dims[i];
        const int32_t *given = tf.count(splits) ? tf.data(splits) : NULL;
        for (int i = 0; i < size; i++) sum += counts[i] = (given ? given[i] : dims[0] / size) * row;
        if (sum != (int64_t)o.count) {
            wrong(run, s, "run alltoall: the splits do not add up to the tensor's rows");
        } else {
            o.send_counts = counts;
            int64_t ticket = sized(n, run, s, in, &o, dims, &left), ranks = size;
            if (ticket > 0) {
                received = tf.allocate(run, 1, 3, &ranks, 1, (size_t)size * sizeof(int32_t), s);
                if (tf.code(s)) tf.failed(run, s);
                else
                    for (int i = 0; i < size && i < (int)left.ncount; i++) ((int32_t *)tf.data(received))[i] = row ? (int32_t)(left.counts[i] / row) : 0;
                hora_release((uint64_t)ticket);
            }
        }
    }
    free(counts);
    if (in) tf.close(in);
    if (splits) tf.close(splits);
    if (received) tf.close(received);
    tf.status_close(s);
}

static void scatter(void *p, tf_running *run) {
    node own = *(node *)p, *n = &own;
    own.kind = 5;
    tf_status *s = tf.status();
    tf_tensor *in = NULL, *out = NULL;
    int64_t dims[MOST_DIMS], *counts = NULL;
    hora_op o;
    int32_t rank, size;
    int64_t group = libhora_bridge_find((uint64_t)n->group);
    tf.input(run, 0, &in, s);
    if (tf.code(s)) {
        tf.failed(run, s);
    } else if (group < 0 || libhora_bridge_place((uint64_t)group, &rank, &size) < 0) {
        fail(run, s);
    } else if (prepare(n, in, &o, dims) < 0 || !o.ndim) {
        wrong(run, s, "run reducescatter: it needs a tensor of at least one dimension, of an element type that hora knows");
    } else if (!(counts = malloc((size_t)size * sizeof *counts))) {
        wrong(run, s, "run reducescatter: out of memory");
    } else {
        int64_t row = 1, rows = dims[0];
        for (uint32_t i = 1; i < o.ndim; i++) row *= dims[i];
        for (int i = 0; i < size; i++) counts[i] = (rows / size + (i < rows % size)) * row; // the first ones get one more
        dims[0] = rows / size + (rank < rows % size);
        out = tf.allocate(run, 0, tf.type(in), dims, (int)o.ndim, o.count ? tf.bytes(in) / (size_t)o.count * (size_t)counts[rank] : 0, s);
        dims[0] = rows;
        if (tf.code(s)) {
            tf.failed(run, s);
        } else {
            o.recv = tf.data(out);
            o.recv_count = (uint64_t)counts[rank];
            if (rows % size) o.recv_counts = counts;
            if (libhora_bridge_run((uint64_t)n->group, &o, 1) < 0) fail(run, s);
        }
    }
    free(counts);
    if (in) tf.close(in);
    if (out) tf.close(out);
    tf.status_close(s);
}

// answer gives one number as the operation's result.
static void answer(tf_running *run, tf_status *s, int32_t value) {
    tf_tensor *out = tf.allocate(run, 0, 3, NULL, 0, sizeof value, s);
    if (tf.code(s)) {
        tf.failed(run, s);
        return;
    }
    *(int32_t *)tf.data(out) = value;
    tf.close(out);
}

enum { RANK, SIZE };

// place answers who this process is when the graph runs; a process that is not in the group is rank -1.
static void place(void *p, tf_running *run) {
    node *n = p;
    tf_status *s = tf.status();
    int32_t rank, size;
    int64_t group = libhora_bridge_find((uint64_t)n->group);
    if (group < 0 || libhora_bridge_place((uint64_t)group, &rank, &size) < 0) {
        fail(run, s);
    } else {
        answer(run, s, n->kind == RANK ? rank : size);
    }
    tf.status_close(s);
}

static void join(void *p, tf_running *run) {
    node *n = p;
    tf_status *s = tf.status();
    int64_t group = libhora_bridge_find((uint64_t)n->group);
    int64_t ticket = group < 0 ? -1 : hora_join((uint64_t)group);
    hora_outcome left = {.size = sizeof left};
    if (ticket < 0 || libhora_bridge_await(ticket) < 0 || hora_result((uint64_t)ticket, &left) < 0) {
        fail(run, s);
    } else {
        answer(run, s, (int32_t)left.value);
    }
    if (ticket > 0) hora_release((uint64_t)ticket);
    tf.status_close(s);
}

// ---- shapes

static void same_shapes(tf_shapes *c, tf_status *s) {
    tf_shape *h = tf.shape();
    int64_t n = tf.shapes_in(c);
    for (int i = 0; i < n && !tf.code(s); i++) {
        tf.shape_in(c, i, h, s);
        if (!tf.code(s)) tf.shape_out(c, i, h, s);
    }
    tf.shape_close(h);
}

static void unknown_shapes(tf_shapes *c, tf_status *s) { tf.shape_unknown(c, s); }

static void scalar_shape(tf_shapes *c, tf_status *s) {
    tf_shape *h = tf.scalar(c);
    tf.shape_out(c, 0, h, s);
    tf.shape_close(h);
}

// ---- registering

typedef struct {
    const char *name, *in[3], *out[3], *attrs[10];
    void (*shapes)(tf_shapes *, tf_status *);
    void *(*make)(tf_making *);
    void (*run)(void *, tf_running *);
} operation;

static const operation operations[] = {
    {"HoraEach", {"tensors: T"}, {"results: T"},
     {"T: list(" TYPES ") >= 1", "kind: int = 1", "op: int = 0", "root: int = 0", "prescale: float = 1.0", "postscale: float = 1.0", CALL},
     same_shapes, make_each, each},
    {"HoraAllgather", {"tensor: T"}, {"gathered: T"}, {"T: " TYPES, CALL}, unknown_shapes, make_moving, gather},
    {"HoraAlltoall", {"tensor: T", "splits: int32"}, {"result: T", "received_splits: int32"}, {"T: " TYPES, CALL}, unknown_shapes, make_moving, exchange},
    {"HoraReducescatter", {"tensor: T"}, {"part: T"}, {"T: " TYPES, "op: int = 0", "prescale: float = 1.0", "postscale: float = 1.0", CALL},
     unknown_shapes, make_reducing, scatter},
    {"HoraPlace", {NULL}, {"answer: int32"}, {"what: int = 0", CALL}, scalar_shape, make_place, place},
    {"HoraJoin", {NULL}, {"last: int32"}, {CALL}, scalar_shape, make_moving, join},
};

static char why[256];

static int refuse(tf_status *s, const char *name) {
    snprintf(why, sizeof why, "register %s with TensorFlow: %s", name, tf.message(s));
    tf.status_close(s);
    libhora_fail(HORA_SETTINGS, -1, why, strlen(why));
    return -1;
}

static int enter(const operation *o) {
    tf_builder *b = tf.define(o->name);
    for (int i = 0; i < 3 && o->in[i]; i++) tf.in(b, o->in[i]);
    for (int i = 0; i < 3 && o->out[i]; i++) tf.out(b, o->out[i]);
    for (int i = 0; i < 10 && o->attrs[i]; i++) tf.attr(b, o->attrs[i]);
    tf.stateful(b, true);
    tf.shapes(b, o->shapes);
    tf_status *s = tf.status();
    tf.defined(b, s);
    if (tf.code(s)) return refuse(s, o->name);
    tf.kernel_done(o->name, tf.kernel(o->name, "CPU", o->make, o->run, drop), s);
    if (tf.code(s)) return refuse(s, o->name);
    tf.status_close(s);
    return 0;
}

int32_t hora_tf_open(void) {
    static int open;
    if (libhora_enter() < 0) return -1;
    if (open) return 0;
    void *lib = dlopen("libtensorflow_framework.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (!lib) {
        const char *text = "open TensorFlow: its library libtensorflow_framework.so.2 is not in this process; import tensorflow first";
        libhora_fail(HORA_SETTINGS, -1, text, strlen(text));
        return -1;
    }
#define FIND(answer, name, symbol, arguments)                                                                                    \
    if (!(*(void **)&tf.name = dlsym(lib, symbol))) {                                                                            \
        snprintf(why, sizeof why, "open TensorFlow: it has no function %s; docs/compatibility.md lists what works", symbol);     \
        libhora_fail(HORA_SETTINGS, -1, why, strlen(why));                                                                       \
        return -1;                                                                                                               \
    }
    FUNCTIONS(FIND)
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (enter(&operations[i]) < 0) return -1;
    open = 1;
    return 0;
}
