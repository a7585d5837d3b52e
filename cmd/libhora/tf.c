// Collectives as operations of TensorFlow, by its C interface found with dlsym: no header of TensorFlow's is included and
// nothing of it is linked. They are registered from inside tf.load_op_library (see tf_stub.c), stateful, so that a graph
// runs them one at a time in program order, and their kernels run on the thread that TensorFlow calls them on (tf_run.c). Each
// has a second form for graphs of TensorFlow 1, which know no such order (tf_later.c).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "tf.h"

tf_functions libhora_tf;

// Any type: the language of registrations has no word for floats of 8 bits. Which there are libhora_tf_type knows.
#define TYPES "type"
#define CALL "group: int = 0", "label: string = ''", "named: bool = false", "precondition: bool = false"

// ---- what a node of a graph says of its call

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
    if (!tf.code(s)) tf.get_bool(m, "precondition", &n->precondition, s);
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

#define KERNEL(name, begin)                                                                                 \
    static void name(void *n, tf_running *run) { libhora_tf_now(n, run, begin); }                           \
    static void name##_later(void *n, tf_running *run, tf_done *done) { libhora_tf_later(n, run, done, begin); }
KERNEL(each, libhora_tf_each)
KERNEL(gather, libhora_tf_gather)
KERNEL(exchange, libhora_tf_exchange)
KERNEL(scatter, libhora_tf_scatter)
KERNEL(join, libhora_tf_join)

enum { RANK, SIZE };

// where answers who this process is when the graph runs.
static int where(work *w) {
    int32_t rank, size;
    int64_t group = libhora_bridge_find((uint64_t)w->node->group);
    if (group < 0 || libhora_bridge_place((uint64_t)group, &rank, &size) < 0) libhora_tf_fail(w);
    else libhora_tf_answer(w, w->node->kind == RANK ? rank : size);
    return -1; // nothing is to be run
}

static void place(void *n, tf_running *run) { libhora_tf_now(n, run, where); }

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
    void (*later)(void *, tf_running *, tf_done *);
} operation;

static const operation operations[] = {
    {"HoraEach", {"tensors: T"}, {"results: T"},
     {"T: list(" TYPES ") >= 1", "kind: int = 1", "op: int = 0", "root: int = 0", "prescale: float = 1.0", "postscale: float = 1.0", CALL},
     same_shapes, make_each, each, each_later},
    {"HoraAllgather", {"tensor: T"}, {"gathered: T"}, {"T: " TYPES, CALL}, unknown_shapes, make_moving, gather, gather_later},
    {"HoraAlltoall", {"tensor: T", "splits: int32"}, {"result: T", "received_splits: int32"}, {"T: " TYPES, CALL}, unknown_shapes, make_moving, exchange, exchange_later},
    {"HoraReducescatter", {"tensor: T"}, {"part: T"}, {"T: " TYPES, "op: int = 0", "prescale: float = 1.0", "postscale: float = 1.0", CALL},
     unknown_shapes, make_reducing, scatter, scatter_later},
    {"HoraPlace", {NULL}, {"answer: int32"}, {"what: int = 0", CALL}, scalar_shape, make_place, place, NULL},
    {"HoraJoin", {NULL}, {"last: int32"}, {CALL}, scalar_shape, make_moving, join, join_later},
};

static char why[256];

static int refuse(tf_status *s, const char *name) {
    snprintf(why, sizeof why, "register %s with TensorFlow: %s", name, tf.message(s));
    tf.status_close(s);
    libhora_fail(HORA_SETTINGS, -1, why, strlen(why));
    return -1;
}

// enter registers an operation; later is its form for graphs of TensorFlow 1, whose name says so.
static int enter(const operation *o, int later) {
    char name[32];
    snprintf(name, sizeof name, "%s%s", o->name, later ? "Later" : "");
    tf_builder *b = tf.define(name);
    for (int i = 0; i < 3 && o->in[i]; i++) tf.in(b, o->in[i]);
    for (int i = 0; i < 3 && o->out[i]; i++) tf.out(b, o->out[i]);
    for (int i = 0; i < 10 && o->attrs[i]; i++) tf.attr(b, o->attrs[i]);
    tf.stateful(b, true);
    tf.shapes(b, o->shapes);
    tf_status *s = tf.status();
    tf.defined(b, s);
    if (tf.code(s)) return refuse(s, name);
    tf_kernel *k = later ? tf.kernel_later(name, "CPU", o->make, o->later, drop) : tf.kernel(name, "CPU", o->make, o->run, drop);
    tf.kernel_done(name, k, s);
    if (tf.code(s)) return refuse(s, name);
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
    *(void **)&tf.kernel_later = dlsym(lib, "TF_NewAsyncKernelBuilder");
    *(void **)&tf.call = dlsym(lib, "TF_RunAsyncOpKernelDoneCallback");
    int later = tf.kernel_later && tf.call;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (enter(&operations[i], 0) < 0 || (later && operations[i].later && enter(&operations[i], 1) < 0)) return -1;
    open = 1;
    return 0;
}
