// Operations of TensorFlow's graphs as operations of hora's: inputs read, results made, failures told.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "tf.h"

// Element types: TensorFlow's number → hora's.
static const uint8_t types[26] = {[1] = 12, [2] = 13, [3] = 7, [4] = 2, [5] = 5, [6] = 3, [8] = 14, [9] = 9, [10] = 1,
                                  [14] = 11, [17] = 4, [18] = 15, [19] = 10, [22] = 6, [23] = 8, [24] = 17, [25] = 16};

uint8_t libhora_tf_type(int64_t type) { return type >= 0 && type < (int64_t)(sizeof types) ? types[type] : 0; }

enum { STRING = 7, INT32 = 3, BROADCAST = 3, ALLGATHER = 4, REDUCESCATTER = 5, ALLTOALL = 6 };

// ---- failures

static int code(const node *n, int32_t kind) {
    switch (kind) {
    case HORA_MISMATCH:
        if (n->precondition) return 9; // FailedPreconditionError
        return 3;                      // InvalidArgumentError
    case HORA_ARGUMENT: return 3;
    case HORA_DEADLINE: return 4; // DeadlineExceededError
    case HORA_NOT_INITIALIZED:
    case HORA_CLOSED:
    case HORA_FORKED: return 9; // FailedPreconditionError
    case HORA_PEER_LOST: return 10; // AbortedError
    }
    return 13; // InternalError
}

void libhora_tf_fail(work *w) {
    int32_t kind = hora_last_kind();
    tf.status_set(w->status, code(w->node, kind), libhora_bridge_told());
    tf.failed(w->run, w->status);
    w->failed = 1;
}

void libhora_tf_wrong(work *w, const char *text) {
    libhora_fail(HORA_ARGUMENT, -1, text, strlen(text));
    libhora_tf_fail(w);
}

// refused passes on a failure of TensorFlow's own.
static int refused(work *w) {
    tf.failed(w->run, w->status);
    w->failed = 1;
    return -1;
}

static int wrong(work *w, const char *text) {
    libhora_tf_wrong(w, text);
    return -1;
}

// ---- an operation's inputs and memory

static int open_work(work *w, int many) {
    w->many = many;
    w->ops = calloc((size_t)many, sizeof *w->ops);
    w->in = calloc((size_t)many + 1, sizeof *w->in); // alltoall has splits besides
    w->out = calloc((size_t)many + 1, sizeof *w->out);
    w->names = malloc((size_t)many * sizeof *w->names);
    w->dims = malloc((size_t)many * sizeof *w->dims);
    w->tickets = calloc((size_t)many, sizeof *w->tickets);
    if (w->ops && w->in && w->out && w->names && w->dims && w->tickets) return 0;
    return wrong(w, "run operation: out of memory");
}

void libhora_tf_close(work *w) {
    for (int i = 0; i <= w->many && w->in && w->out; i++) {
        if (w->in[i]) tf.close(w->in[i]);
        if (w->out[i]) tf.close(w->out[i]);
    }
    free(w->ops), free(w->in), free(w->out), free(w->names), free(w->dims), free(w->counts), free(w->stands), free(w->tickets);
    tf.status_close(w->status);
}

// prepare fills an operation with an input and what the node says.
static int prepare(work *w, int i, int kind) {
    const node *n = w->node;
    tf.input(w->run, i, &w->in[i], w->status);
    if (tf.code(w->status)) return refused(w);
    const tf_tensor *in = w->in[i];
    int type = tf.type(in), rank = tf.dims(in);
    if (type < 0 || type >= (int)(sizeof types) || !types[type] || rank > MOST_DIMS)
        return wrong(w, type == STRING ? "run operation: hora does not know the element type string; encode the text as uint8"
                                       : "run operation: hora does not know this element type; cast it to one of numbers");
    int64_t *dims = w->dims[i];
    for (int d = 0; d < rank; d++) dims[d] = tf.dim(in, d);
    w->ops[i] = (hora_op){.size = sizeof(hora_op), .kind = (uint8_t)kind, .op = (uint8_t)n->op, .dtype = types[type], .root = (int32_t)n->root,
                          .prescale = n->pre, .postscale = n->post, .send = tf.data(in), .count = (uint64_t)tf.count(in),
                          .shape = dims, .ndim = (uint32_t)rank, .name = n->label && *n->label ? n->label : NULL,
                          .flags = n->named ? HORA_NAMED : 0};
    return 0;
}

// each is what keeps its shape: allreduce and broadcast, of any number of tensors, in place where TensorFlow lets go of them.
int libhora_tf_each(work *w) {
    const node *n = w->node;
    if (open_work(w, tf.inputs(w->run)) < 0) return -1;
    for (int i = 0; i < w->many; i++) {
        if (prepare(w, i, (int)n->kind) < 0) return -1;
        hora_op *o = &w->ops[i];
        size_t bytes = tf.bytes(w->in[i]);
        // TensorFlow lets go of a tensor only that nobody else holds, and we would. Its kernel's run holds it until the end.
        tf.close(w->in[i]);
        w->in[i] = NULL;
        int from = -1;
        w->out[i] = tf.forward(w->run, &i, 1, i, w->dims[i], (int)o->ndim, &from, w->status);
        if (tf.code(w->status)) return refused(w);
        o->recv = tf.data(w->out[i]);
        o->recv_count = o->count;
        if (n->kind == BROADCAST && o->send != o->recv) { // broadcast is in place: the root's goes along
            memcpy(o->recv, o->send, bytes);
            o->send = o->recv;
        }
        if (o->name && w->many > 1) { // how many there are is in each name, and names are compared
            snprintf(w->names[i], NAME, "%.150s_%dof%d", n->label, i + 1, w->many);
            o->name = w->names[i];
        }
    }
    return 0;
}

// counted is how many elements say that there is a row: ranks tell each other of elements, and of rows without any an
// element each is sent.
static uint64_t counted(const hora_op *o) { return o->row ? o->row : 1; }

// take gives TensorFlow a result whose rows only the ranks together know. It is copied: TensorFlow has no way to be given
// memory here.
static void take(work *w) {
    hora_outcome left = {.size = sizeof left};
    if (hora_result(w->tickets[0], &left) < 0) {
        libhora_tf_fail(w);
        return;
    }
    hora_op *o = &w->ops[0];
    int64_t *dims = w->dims[0], total = 0, row = (int64_t)counted(o);
    size_t bytes = o->row ? (size_t)left.bytes : 0;
    for (uint32_t i = 0; i < left.ncount; i++) total += left.counts[i];
    dims[0] = total / row;
    w->out[0] = tf.allocate(w->run, 0, tf.type(w->in[0]), dims, (int)o->ndim, bytes, w->status);
    if (tf.code(w->status)) {
        refused(w);
    } else if (bytes) {
        memcpy(tf.data(w->out[0]), left.memory, bytes);
    }
    if (left.buffer) hora_buffer_close(left.buffer);
    if (w->failed || o->kind != ALLTOALL) return;
    int64_t ranks = w->size;
    w->out[1] = tf.allocate(w->run, 1, INT32, &ranks, 1, (size_t)w->size * sizeof(int32_t), w->status);
    if (tf.code(w->status)) {
        refused(w);
        return;
    }
    int32_t *received = tf.data(w->out[1]);
    for (int i = 0; i < w->size; i++) received[i] = i < (int)left.ncount ? (int32_t)(left.counts[i] / row) : 0;
}

enum { MOST_BYTES = 16 }; // of an element

static int sized(work *w) {
    hora_op *o = &w->ops[0];
    if (!o->ndim) w->dims[0][0] = 1, o->ndim = 1; // a number is one row
    o->row = 1;
    for (uint32_t i = 1; i < o->ndim; i++) o->row *= (uint64_t)w->dims[0][i];
    if (!o->row && w->dims[0][0]) {
        o->count = (uint64_t)w->dims[0][0];
        o->send = w->stands = calloc((size_t)o->count, MOST_BYTES);
        if (!w->stands) return wrong(w, "run operation: out of memory");
    }
    o->flags |= HORA_SIZES;
    w->finish = take;
    return 0;
}

int libhora_tf_gather(work *w) {
    if (open_work(w, 1) < 0 || prepare(w, 0, ALLGATHER) < 0) return -1;
    return sized(w);
}

// rows prepares an operation that gives each rank its own part of the rows.
static int rows(work *w, int kind, int32_t *rank) {
    int64_t group = libhora_bridge_find((uint64_t)w->node->group);
    if (group < 0 || libhora_bridge_place((uint64_t)group, rank, &w->size) < 0) {
        libhora_tf_fail(w);
        return -1;
    }
    if (open_work(w, 1) < 0 || prepare(w, 0, kind) < 0) return -1;
    if (!w->ops[0].ndim)
        return wrong(w, kind == ALLTOALL ? "run alltoall: a number has no rows; give a tensor of at least one dimension"
                                         : "run reducescatter: a number has no rows; give a tensor of at least one dimension");
    w->counts = malloc((size_t)w->size * sizeof *w->counts);
    return w->counts ? 0 : wrong(w, "run operation: out of memory");
}

int libhora_tf_exchange(work *w) {
    int32_t rank;
    if (rows(w, ALLTOALL, &rank) < 0) return -1;
    tf.input(w->run, 1, &w->in[1], w->status);
    if (tf.code(w->status)) return refused(w);
    tf_tensor *splits = w->in[1];
    hora_op *o = &w->ops[0];
    if (tf.type(splits) != INT32 || (tf.count(splits) && tf.count(splits) != w->size))
        return wrong(w, "run alltoall: splits must be int32, one number of rows for each rank, or empty for equal parts");
    if (!tf.count(splits) && w->dims[0][0] % w->size)
        return wrong(w, "run alltoall: the rows cannot be divided evenly over the ranks; give splits");
    if (sized(w) < 0) return -1;
    const int32_t *given = tf.count(splits) ? tf.data(splits) : NULL;
    int64_t row = (int64_t)counted(o), sum = 0;
    for (int i = 0; i < w->size; i++) sum += w->counts[i] = (given ? given[i] : w->dims[0][0] / w->size) * row;
    if (sum != (int64_t)o->count) return wrong(w, "run alltoall: the splits do not add up to the tensor's rows");
    o->send_counts = w->counts;
    return 0;
}

int libhora_tf_scatter(work *w) {
    int32_t rank;
    if (rows(w, REDUCESCATTER, &rank) < 0) return -1;
    hora_op *o = &w->ops[0];
    int64_t row = 1, *dims = w->dims[0], all = dims[0], n = w->size;
    for (uint32_t i = 1; i < o->ndim; i++) row *= dims[i];
    for (int i = 0; i < n; i++) w->counts[i] = (all / n + (i < all % n)) * row; // the first ones get one more
    size_t bytes = o->count ? tf.bytes(w->in[0]) / (size_t)o->count * (size_t)w->counts[rank] : 0;
    dims[0] = all / n + (rank < all % n);
    w->out[0] = tf.allocate(w->run, 0, tf.type(w->in[0]), dims, (int)o->ndim, bytes, w->status);
    dims[0] = all;
    if (tf.code(w->status)) return refused(w);
    o->recv = tf.data(w->out[0]);
    o->recv_count = (uint64_t)w->counts[rank];
    if (all % n) o->recv_counts = w->counts;
    return 0;
}

void libhora_tf_answer(work *w, int32_t value) {
    tf_tensor *out = tf.allocate(w->run, 0, INT32, NULL, 0, sizeof value, w->status);
    if (tf.code(w->status)) {
        refused(w);
        return;
    }
    *(int32_t *)tf.data(out) = value;
    tf.close(out);
}

static void last(work *w) {
    hora_outcome left = {.size = sizeof left};
    if (hora_result(w->tickets[0], &left) < 0) libhora_tf_fail(w);
    else libhora_tf_answer(w, (int32_t)left.value);
}

int libhora_tf_join(work *w) {
    int64_t group = libhora_bridge_find((uint64_t)w->node->group);
    int64_t ticket = group < 0 ? -1 : hora_join((uint64_t)group);
    w->tickets = calloc(1, sizeof *w->tickets);
    if (ticket < 0 || !w->tickets) {
        libhora_tf_fail(w);
        return -1;
    }
    w->tickets[0] = (uint64_t)ticket;
    w->finish = last;
    return 0;
}

// ---- on the thread that TensorFlow calls: an operation of a few bytes takes less than a hand-over

// alone runs what has a result to be taken.
static void alone(work *w) {
    int64_t ticket = (int64_t)w->tickets[0];
    if (!ticket) {
        int64_t group = libhora_bridge_find((uint64_t)w->node->group);
        ticket = group < 0 ? -1 : hora_run((uint64_t)group, &w->ops[0]);
        if (ticket > 0) w->tickets[0] = (uint64_t)ticket;
    }
    if (ticket < 0 || libhora_bridge_await(ticket) < 0) libhora_tf_fail(w);
    else w->finish(w);
    if (ticket > 0) hora_release((uint64_t)ticket);
}

void libhora_tf_now(const node *n, tf_running *run, tf_begin begin) {
    work w = {.node = n, .run = run, .status = tf.status()};
    if (begin(&w) == 0) {
        if (w.finish) alone(&w);
        else if (libhora_bridge_run((uint64_t)n->group, w.ops, (uint64_t)w.many) < 0) libhora_tf_fail(&w);
    }
    libhora_tf_close(&w);
}
