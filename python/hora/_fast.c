/* hora._fast: the calls that a program makes most often, without ctypes between them and the library.
 *
 * It is an extension module in CPython's stable ABI of 3.10, so one file serves every later version. The few
 * declarations of that ABI which it needs stand here: no Python headers are installed to build it, and the bytes are
 * the same whichever Python runs the builder. Where it is not there or cannot be loaded, _abi.py's functions of the
 * same names do the same through ctypes. It knows the library by the addresses that bind() was given.
 *
 * Python's signal handlers run between any two steps of a program and may raise there, so a ticket must not be lost on
 * its way from the library to who waits for it: before these functions return one, they have put it and what its
 * operation reads and writes into `flights`, which keeps the memory until the operation has ended. What they return is a
 * number that looks after itself: when nothing refers to it any more, its ticket is released, or counted among the
 * `orphans` while its operation goes on. Nothing in here runs Python code between the library's answer and that.
 *
 * allreduce() is the reduction in place of one array, blocking and ordered: NumPy arrays and other buffers are looked
 * at through the buffer protocol, tensors through DLPack's exchange table, and everything else, faults included, goes
 * to the function in Python that it stands before. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hora.h"

/* ---- CPython's stable ABI */

typedef ptrdiff_t Py_ssize_t;
typedef struct _object {
    Py_ssize_t count;
    struct _object *type;
} PyObject;
typedef struct {
    const char *name;
    void *call;
    int flags;
    const char *doc;
} PyMethodDef;
typedef struct {
    PyObject head;
    PyObject *(*init)(void);
    Py_ssize_t index;
    PyObject *copy;
    const char *name, *doc;
    Py_ssize_t size;
    PyMethodDef *methods;
    void *slots, *traverse, *clear, *free;
} PyModuleDef;
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer; /* as it has been since 3.3, and in the stable ABI since 3.11 */

typedef struct {
    int slot;
    void *function;
} PyType_Slot;
typedef struct {
    const char *name;
    int basicsize, itemsize;
    unsigned flags;
    PyType_Slot *slots;
} PyType_Spec;

enum { METH_O = 8, METH_FASTCALL = 0x80, METH_KEYWORDS = 2 };
enum { Py_tp_finalize = 80, Py_TPFLAGS_DEFAULT = 1 << 18 };
enum { PyBUF_WRITABLE = 1, PyBUF_FORMAT = 4, PyBUF_ND = 8 };

extern PyObject _Py_NoneStruct, PyLong_Type;
extern PyObject *PyExc_TypeError;
PyObject *PyModule_Create2(PyModuleDef *, int);
void *PyInterpreterState_Get(void);
int64_t PyInterpreterState_GetID(void *);
PyObject *PyBool_FromLong(long);
void Py_IncRef(PyObject *), Py_DecRef(PyObject *);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
PyObject *PyLong_FromLongLong(long long), *PyLong_FromUnsignedLongLong(unsigned long long);
PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
char *PyBytes_AsString(PyObject *);
int PyBytes_AsStringAndSize(PyObject *, char **, Py_ssize_t *);
PyObject *PyList_New(Py_ssize_t);
int PyList_SetItem(PyObject *, Py_ssize_t, PyObject *);
PyObject *PyTuple_New(Py_ssize_t), *PyTuple_GetItem(PyObject *, Py_ssize_t);
Py_ssize_t PyTuple_Size(PyObject *);
int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
PyObject *PyDict_New(void), *PyDict_GetItemWithError(PyObject *, PyObject *);
int PyDict_SetItem(PyObject *, PyObject *, PyObject *), PyDict_DelItem(PyObject *, PyObject *);
Py_ssize_t PyDict_Size(PyObject *);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void), PyErr_SetString(PyObject *, const char *);
void PyErr_Fetch(PyObject **, PyObject **, PyObject **), PyErr_Restore(PyObject *, PyObject *, PyObject *);
PyObject *PyTuple_Pack(Py_ssize_t, ...);
PyObject *PyType_FromSpecWithBases(PyType_Spec *, PyObject *);
int PyObject_IsTrue(PyObject *);
long long PyLong_AsLongLong(PyObject *);
PyObject *PyMemoryView_FromObject(PyObject *);
PyObject *PyObject_Call(PyObject *, PyObject *, PyObject *);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
void PyBuffer_Release(Py_buffer *);
PyObject *PyUnicode_InternFromString(const char *);
int PyUnicode_Compare(PyObject *, PyObject *);
void *PyCapsule_GetPointer(PyObject *, const char *);
PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *));
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);

#define None (&_Py_NoneStruct)
#define TYPE(x) ((x)->type)

/* ---- DLPack's table for borrowing a look at a tensor */

typedef struct {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t offset;
} DLTensor;
typedef struct Exchange {
    uint32_t major, minor;
    struct Exchange *older;
    void *allocate, *managed, *wrap;
    int (*look)(void *object, DLTensor *out);
    void *stream;
} Exchange;

/* ---- the library */

static struct {
    int64_t (*run)(uint64_t, const hora_op *);
    int32_t (*submit)(uint64_t, const hora_op *, uint64_t, uint64_t *);
    int64_t (*start)(uint64_t), (*start_async)(uint64_t);
    int32_t (*wait)(uint64_t, uint32_t);
    int32_t (*release)(uint64_t);
} lib;

static PyObject *flights; /* ticket -> what its operation reads and writes */
static PyObject *orphans; /* ticket -> whether its caller waited for it: nobody does any more, and it may not have ended */
static PyObject *types[2]; /* of tickets that are handed out, and of those that the call itself waits for */

/* bind(six addresses, flights, orphans) makes the library known. */
static PyObject *bind(PyObject *self, PyObject *const *a, Py_ssize_t n) {
    (void)self;
    void *at[6];
    if (n != 8) return PyErr_SetString(PyExc_TypeError, "bind takes six addresses and two dictionaries"), NULL;
    for (int i = 0; i < 6; i++) at[i] = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(a[i]);
    if (PyErr_Occurred()) return NULL;
    lib.run = (int64_t(*)(uint64_t, const hora_op *))at[0];
    lib.submit = (int32_t(*)(uint64_t, const hora_op *, uint64_t, uint64_t *))at[1];
    lib.start = (int64_t(*)(uint64_t))at[2];
    lib.start_async = (int64_t(*)(uint64_t))at[3];
    lib.wait = (int32_t(*)(uint64_t, uint32_t))at[4];
    lib.release = (int32_t(*)(uint64_t))at[5];
    Py_IncRef(a[6]), Py_IncRef(a[7]); /* for as long as the process lives */
    flights = a[6], orphans = a[7];
    Py_IncRef(None);
    return None;
}

/* let_go releases the ticket of a key of flights, or leaves it to the orphans while its operation goes on. */
static void let_go(PyObject *key, int awaited) {
    uint64_t ticket = PyLong_AsUnsignedLongLong(key);
    PyObject *kept = PyDict_GetItemWithError(flights, key);
    if (!kept) return PyErr_Clear(); /* it was released before */
    if (lib.wait(ticket, 0) == 1) {
        PyObject *was = PyDict_GetItemWithError(orphans, key) ? NULL : PyLong_FromLongLong(awaited);
        if (was) PyDict_SetItem(orphans, key, was), Py_DecRef(was);
    } else {
        lib.release(ticket);
        Py_IncRef(kept); /* whose end may call anything: last */
        PyDict_DelItem(flights, key);
        if (PyDict_GetItemWithError(orphans, key)) PyDict_DelItem(orphans, key);
        Py_DecRef(kept);
    }
    PyErr_Clear();
}

/* dropped is the end of a number that was handed out. */
static void dropped(PyObject *ticket) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *key = PyLong_FromUnsignedLongLong(PyLong_AsUnsignedLongLong(ticket));
    if (key) let_go(key, TYPE(ticket) == types[1]), Py_DecRef(key);
    PyErr_Restore(type, value, trace);
}

static PyType_Slot ticket_slots[] = {{Py_tp_finalize, (void *)dropped}, {0, NULL}};
static PyType_Spec ticket_specs[2] = {
    {"hora._fast.Ticket", 0, 0, Py_TPFLAGS_DEFAULT, ticket_slots},
    {"hora._fast.AwaitedTicket", 0, 0, Py_TPFLAGS_DEFAULT, ticket_slots},
};

/* flying answers the number for what the library answered; a ticket's operation keeps `what` (and `more`) until its end. */
static PyObject *flying(int64_t ticket, PyObject *what, PyObject *more, int awaited) {
    PyObject *key = PyLong_FromLongLong(ticket);
    if (!key || ticket <= 0) return key;
    PyObject *kept = PyTuple_Pack(2, what, more);
    if (!kept || PyDict_SetItem(flights, key, kept) < 0) Py_IncRef(what), Py_IncRef(more); /* no memory for that: then for ever */
    if (kept) Py_DecRef(kept);
    PyObject *answer = PyObject_CallFunctionObjArgs(types[awaited], key, NULL);
    Py_DecRef(key);
    return answer;
}

/* ready reports whether n arguments came and the library is known; else it sets an error. */
static int ready(Py_ssize_t got, Py_ssize_t n, const char *usage) {
    if (got == n && lib.run) return 1;
    PyErr_SetString(PyExc_TypeError, got == n ? "the library is not loaded: call hora.init() first" : usage);
    return 0;
}

static PyObject *run(PyObject *self, PyObject *const *a, Py_ssize_t n) {
    (void)self;
    if (!ready(n, 4, "hora_run takes a group, a packed operation, what to keep and whether the caller waits")) return NULL;
    uint64_t group = PyLong_AsUnsignedLongLong(a[0]);
    char *op;
    Py_ssize_t bytes;
    if (PyBytes_AsStringAndSize(a[1], &op, &bytes) < 0 || PyErr_Occurred()) return NULL;
    if ((size_t)bytes < sizeof(hora_op)) return PyErr_SetString(PyExc_TypeError, "hora_run: the operation is too short"), NULL;
    void *thread = PyEval_SaveThread();
    int64_t ticket = lib.run(group, (const hora_op *)op);
    PyEval_RestoreThread(thread);
    return ticket > 0 ? flying(ticket, a[1], a[2], PyObject_IsTrue(a[3])) : PyLong_FromLongLong(ticket);
}

/* submit answers the tickets, or None on failure. */
static PyObject *submit(PyObject *self, PyObject *const *a, Py_ssize_t n) {
    (void)self;
    if (!ready(n, 5, "hora_submit takes a group, packed operations, their number, what to keep and whether the caller waits")) return NULL;
    uint64_t group = PyLong_AsUnsignedLongLong(a[0]), count = PyLong_AsUnsignedLongLong(a[2]);
    char *ops;
    Py_ssize_t bytes;
    if (PyBytes_AsStringAndSize(a[1], &ops, &bytes) < 0 || PyErr_Occurred()) return NULL;
    if ((uint64_t)bytes / sizeof(hora_op) < count) return PyErr_SetString(PyExc_TypeError, "hora_submit: the operations are too short"), NULL;
    uint64_t few[16], *tickets = few;
    PyObject *many = NULL;
    if (count > 16) {
        many = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof *tickets));
        if (!many) return NULL;
        tickets = (uint64_t *)(void *)PyBytes_AsString(many);
    }
    void *thread = PyEval_SaveThread();
    int32_t bad = lib.submit(group, (const hora_op *)(void *)ops, count, tickets);
    PyEval_RestoreThread(thread);
    PyObject *answer = None;
    if (bad) {
        Py_IncRef(None);
    } else if ((answer = PyList_New((Py_ssize_t)count))) {
        int awaited = PyObject_IsTrue(a[4]);
        for (uint64_t i = 0; i < count; i++) PyList_SetItem(answer, (Py_ssize_t)i, flying((int64_t)tickets[i], a[1], a[3], awaited));
    }
    if (many) Py_DecRef(many);
    return answer;
}

#define ONE(function, awaited)                                                       \
    static PyObject *function(PyObject *self, PyObject *const *a, Py_ssize_t n) {    \
        (void)self;                                                                  \
        if (!ready(n, 2, "hora_" #function " takes a plan and what to keep")) return NULL; \
        uint64_t plan = PyLong_AsUnsignedLongLong(a[0]);                             \
        if (PyErr_Occurred()) return NULL;                                           \
        void *thread = PyEval_SaveThread();                                          \
        int64_t ticket = lib.function(plan);                                         \
        PyEval_RestoreThread(thread);                                                \
        return ticket > 0 ? flying(ticket, None, a[1], awaited) : PyLong_FromLongLong(ticket); \
    }
ONE(start, 1)
ONE(start_async, 0)

/* release gives a ticket back; while its operation goes on, it is an orphan. */
static PyObject *release(PyObject *self, PyObject *const *a, Py_ssize_t n) {
    (void)self;
    if (!ready(n, 1, "hora_release takes a ticket")) return NULL;
    uint64_t ticket = PyLong_AsUnsignedLongLong(a[0]);
    if (PyErr_Occurred()) return NULL;
    PyObject *key = PyLong_FromUnsignedLongLong(ticket);
    if (!key) return NULL;
    if (PyDict_GetItemWithError(flights, key)) let_go(key, 0);
    else lib.release(ticket);
    Py_DecRef(key);
    Py_IncRef(None);
    return None;
}

/* own(function, arguments, what to keep) calls another function of the library that answers a ticket. */
static PyObject *own(PyObject *self, PyObject *const *a, Py_ssize_t n) {
    (void)self;
    if (!ready(n, 3, "own takes a function, its arguments and what to keep")) return NULL;
    if (PyTuple_Size(a[1]) < 0) return PyErr_Clear(), PyErr_SetString(PyExc_TypeError, "own: the arguments are a tuple"), NULL;
    PyObject *answer = PyObject_Call(a[0], a[1], NULL);
    if (!answer) return NULL;
    int64_t ticket = PyLong_AsLongLong(answer);
    Py_DecRef(answer);
    return PyErr_Occurred() ? NULL : flying(ticket, a[1], a[2], 0);
}

static PyObject *wait(PyObject *self, PyObject *const *a, Py_ssize_t n) {
    (void)self;
    if (!ready(n, 2, "hora_wait takes a ticket and milliseconds")) return NULL;
    uint64_t ticket = PyLong_AsUnsignedLongLong(a[0]), ms = PyLong_AsUnsignedLongLong(a[1]);
    if (PyErr_Occurred()) return NULL;
    if (!ms) return PyLong_FromLongLong(lib.wait(ticket, 0)); /* it only looks */
    void *thread = PyEval_SaveThread();
    int32_t answer = lib.wait(ticket, (uint32_t)ms);
    PyEval_RestoreThread(thread);
    return PyLong_FromLongLong(answer);
}

/* ---- the short way of allreduce */

static PyObject *slow;     /* the function of comm.py */
static PyObject *ended;    /* ended(ticket): waits for a ticket > 0, raises for -1 */
static PyObject *readers;  /* class -> capsule: how to look at its arrays; the capsule of buffers holds this module's NULL_TABLE */
static PyObject *codes;    /* operator -> its number */
static PyObject *word_out; /* "out" */
static Exchange NULL_TABLE;
static uint64_t default_op;

/* What is kept until the operation has ended: its arguments, and the shape that they point to. */
enum { DIMENSIONS = 8, LINEAR = 1 /* sum and average are the operators up to here */ };
typedef struct {
    hora_op op;
    int64_t shape[DIMENSIONS];
} call;

/* letter finds the number of an element type by a letter of the struct module and a size; 0: none. See tensor.DType. */
static uint8_t letter(const char *f, Py_ssize_t size) {
    enum { signed_ = 0, unsigned_ = 1 };
    static const uint8_t integers[2][9] = {{0, 3, 5, 0, 7, 0, 0, 0, 9}, {0, 2, 4, 0, 6, 0, 0, 0, 8}};
    if (!f) return 2;
    if (*f == '@' || *f == '=') f++;
    if (f[0] == 'Z') return f[1] == 'f' && !f[2] ? 14 : f[1] == 'd' && !f[2] ? 15 : 0;
    if (!f[0] || f[1]) return 0;
    switch (f[0]) {
    case '?': return size == 1 ? 1 : 0;
    case 'e': return 10;
    case 'f': return 12;
    case 'd': return 13;
    case 'b': case 'h': case 'i': case 'l': case 'q': case 'n': return size <= 8 ? integers[signed_][size] : 0;
    case 'B': case 'H': case 'I': case 'L': case 'Q': case 'N': return size <= 8 ? integers[unsigned_][size] : 0;
    }
    return 0;
}

/* look_at_buffer fills in where a writable contiguous buffer lies. The caller releases it. */
static int look_at_buffer(PyObject *x, Py_buffer *view, call *c) {
    if (PyObject_GetBuffer(x, view, PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_ND) < 0) {
        PyErr_Clear();
        return 0;
    }
    c->op.dtype = letter(view->format, view->itemsize);
    if (!c->op.dtype || view->ndim > DIMENSIONS || view->itemsize <= 0 || (view->ndim && !view->shape)) {
        PyBuffer_Release(view);
        return 0;
    }
    c->op.recv = view->buf;
    c->op.count = (uint64_t)(view->len / view->itemsize);
    c->op.ndim = (uint32_t)view->ndim;
    for (int i = 0; i < view->ndim; i++) c->shape[i] = view->shape[i];
    return 1;
}

/* look_at_tensor does the same with a tensor in this host's memory. */
static int look_at_tensor(PyObject *x, const Exchange *table, call *c) {
    enum { integer, natural, real, opaque, brain, complex_, boolean };
    DLTensor t;
    memset(&t, 0, sizeof t);
    if (table->look(x, &t) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (t.device.type != 1 || t.dtype.lanes != 1 || t.ndim > DIMENSIONS) return 0;
    static const uint8_t reals[9] = {0, 0, 10, 0, 12, 0, 0, 0, 13};
    unsigned bytes = t.dtype.bits / 8u;
    switch (t.dtype.code) {
    case integer: c->op.dtype = letter("b", bytes); break;
    case natural: c->op.dtype = letter("B", bytes); break;
    case real: c->op.dtype = bytes <= 8 ? reals[bytes] : 0; break;
    case brain: c->op.dtype = bytes == 2 ? 11 : 0; break;
    case boolean: c->op.dtype = bytes == 1 ? 1 : 0; break;
    default: c->op.dtype = 0; /* complex ones may be lazy conjugates */
    }
    if (!c->op.dtype) return 0;
    int64_t count = 1;
    for (int i = t.ndim - 1; i >= 0; i--) {
        if (t.strides && t.shape[i] != 1 && t.strides[i] != count) return 0;
        c->shape[i] = t.shape[i];
        count *= t.shape[i];
    }
    c->op.recv = (char *)t.data + t.offset;
    c->op.count = (uint64_t)count;
    c->op.ndim = (uint32_t)t.ndim;
    return 1;
}

/* number finds an operator's, -1: it is none. */
static int number(PyObject *op) {
    PyObject *n = PyDict_GetItemWithError(codes, op);
    if (!n) {
        PyErr_Clear();
        return -1;
    }
    return (int)PyLong_AsUnsignedLongLong(n);
}

/* A block that nobody refers to, for the next call: making one takes a twentieth of a small operation. Whoever takes it
 * holds the interpreter's lock and leaves NULL, so that a call on another thread makes its own. */
static PyObject *spare;

static void give_back(PyObject *block) {
    if (spare) Py_DecRef(block);
    else spare = block;
}

/* in_place answers x after reducing it, NULL with an error, or NULL without one: then it was not for this way. */
static PyObject *in_place(PyObject *x, int op) {
    PyObject *how = PyDict_GetItemWithError(readers, TYPE(x));
    if (!how) return NULL;
    const Exchange *table = PyCapsule_GetPointer(how, NULL);
    if (!table) return NULL;
    PyObject *block = spare;
    spare = NULL;
    if (!block && !(block = PyBytes_FromStringAndSize(NULL, sizeof(call)))) return NULL;
    call *c = (call *)(void *)PyBytes_AsString(block);
    memset(&c->op, 0, sizeof c->op);
    Py_buffer view;
    int is_buffer = table == &NULL_TABLE;
    if (!is_buffer && op > LINEAR) return give_back(block), NULL; /* it may be a lazy negative, whose maximum is the memory's minimum */
    if (!(is_buffer ? look_at_buffer(x, &view, c) : look_at_tensor(x, table, c))) return give_back(block), NULL;
    c->op.size = sizeof c->op;
    c->op.kind = 1;
    c->op.op = (uint8_t)op;
    c->op.prescale = c->op.postscale = 1;
    c->op.send = c->op.recv;
    c->op.recv_count = c->op.count;
    c->op.shape = c->shape;
    void *thread = PyEval_SaveThread();
    int64_t ticket = lib.run(0, &c->op);
    PyEval_RestoreThread(thread);
    PyObject *answer = x;
    if (ticket) {
        /* An export of its own: this one ends here, whatever `ended` does. */
        PyObject *look = is_buffer && ticket > 0 ? PyMemoryView_FromObject(x) : NULL;
        if (!look) PyErr_Clear();
        PyObject *keep = PyTuple_Pack(2, x, look ? look : None);
        if (look) Py_DecRef(look);
        PyObject *number = flying(ticket, block, keep ? keep : x, 1);
        if (keep) Py_DecRef(keep);
        PyObject *done = number ? PyObject_CallFunctionObjArgs(ended, number, NULL) : NULL;
        if (number) Py_DecRef(number);
        if (done) Py_DecRef(done);
        else answer = NULL;
    }
    if (is_buffer) PyBuffer_Release(&view);
    if (ticket) Py_DecRef(block); /* `flights` may keep it */
    else give_back(block);
    if (answer) Py_IncRef(answer);
    return answer;
}

/* long_way makes the same call of the function in Python. */
static PyObject *long_way(PyObject *const *a, Py_ssize_t n, PyObject *names) {
    PyObject *answer = NULL, *arguments = PyTuple_New(n), *named = names ? PyDict_New() : NULL;
    if (!arguments || (names && !named)) goto end;
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_IncRef(a[i]);
        PyTuple_SetItem(arguments, i, a[i]);
    }
    for (Py_ssize_t i = 0; names && i < PyTuple_Size(names); i++)
        if (PyDict_SetItem(named, PyTuple_GetItem(names, i), a[n + i]) < 0) goto end;
    answer = PyObject_Call(slow, arguments, named);
end:
    if (arguments) Py_DecRef(arguments);
    if (named) Py_DecRef(named);
    return answer;
}

static PyObject *allreduce(PyObject *self, PyObject *const *a, Py_ssize_t n, PyObject *names) {
    (void)self;
    /* allreduce(x, out=x) and allreduce(x, op, out=x) */
    if (lib.run && !PyDict_Size(orphans) && names && (n == 1 || n == 2) && PyTuple_Size(names) == 1 && a[n] == a[0]) {
        PyObject *name = PyTuple_GetItem(names, 0);
        if (name == word_out || PyUnicode_Compare(name, word_out) == 0) {
            int op = n == 2 ? number(a[1]) : (int)default_op;
            PyObject *x = op < 0 ? NULL : in_place(a[0], op);
            if (x) return x;
            if (PyErr_Occurred()) return NULL;
        }
    }
    return long_way(a, n, names);
}

/* main() is false in a subinterpreter. */
static PyObject *in_main(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    (void)self, (void)args, (void)n;
    return PyBool_FromLong(PyInterpreterState_GetID(PyInterpreterState_Get()) == 0);
}

static PyMethodDef short_way = {"allreduce", (void *)allreduce, METH_FASTCALL | METH_KEYWORDS, NULL};

/* shortcut(slow, ended, codes, default operator, doc, module name) answers allreduce. */
static PyObject *shortcut(PyObject *self, PyObject *const *a, Py_ssize_t n) {
    if (n != 6) return PyErr_SetString(PyExc_TypeError, "shortcut takes six arguments"), NULL;
    char *doc;
    Py_ssize_t bytes;
    if (PyBytes_AsStringAndSize(a[4], &doc, &bytes) < 0) return NULL;
    for (int i = 0; i < 6; i++) Py_IncRef(a[i]); /* for as long as the process lives */
    slow = a[0], ended = a[1], codes = a[2], short_way.doc = doc;
    int op = number(a[3]);
    if (op < 0) return PyErr_SetString(PyExc_TypeError, "shortcut: the default operator has no number"), NULL;
    default_op = (uint64_t)op;
    return PyCFunction_NewEx(&short_way, self, a[5]);
}

/* accept(class, None or the capsule of DLPack's table) lets arrays of a class go the short way from now on. */
static PyObject *accept(PyObject *self, PyObject *const *a, Py_ssize_t n) {
    (void)self;
    if (n != 2) return PyErr_SetString(PyExc_TypeError, "accept takes a class and how to look at it"), NULL;
    const Exchange *table = &NULL_TABLE;
    if (a[1] != None) {
        table = PyCapsule_GetPointer(a[1], "dlpack_exchange_api");
        while (table && table->major > 1) table = table->older;
        if (!table || !table->look) {
            PyErr_Clear();
            Py_IncRef(None);
            return None;
        }
    }
    PyObject *how = PyCapsule_New((void *)(uintptr_t)table, NULL, NULL);
    if (!how) return NULL;
    int bad = PyDict_SetItem(readers, a[0], how);
    Py_DecRef(how);
    if (bad < 0) return NULL;
    Py_IncRef(None);
    return None;
}

static PyMethodDef methods[] = {
    {"bind", (void *)bind, METH_FASTCALL, NULL},
    {"run", (void *)run, METH_FASTCALL, NULL},
    {"submit", (void *)submit, METH_FASTCALL, NULL},
    {"start", (void *)start, METH_FASTCALL, NULL},
    {"start_async", (void *)start_async, METH_FASTCALL, NULL},
    {"wait", (void *)wait, METH_FASTCALL, NULL},
    {"release", (void *)release, METH_FASTCALL, NULL},
    {"own", (void *)own, METH_FASTCALL, NULL},
    {"shortcut", (void *)shortcut, METH_FASTCALL, NULL},
    {"accept", (void *)accept, METH_FASTCALL, NULL},
    {"main", (void *)in_main, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {
    .head = {1, NULL},
    .name = "hora._fast",
    .doc = "The calls that a program makes most often, without ctypes.",
    .size = -1,
    .methods = methods,
};

__attribute__((visibility("default"))) PyObject *PyInit__fast(void) {
    PyObject *bases = PyTuple_Pack(1, &PyLong_Type);
    for (int i = 0; bases && i < 2; i++)
        if (!(types[i] = PyType_FromSpecWithBases(&ticket_specs[i], bases))) return NULL;
    readers = PyDict_New();
    word_out = PyUnicode_InternFromString("out");
    return bases && readers && word_out ? PyModule_Create2(&module, 3) : NULL; /* 3: the stable ABI */
}
