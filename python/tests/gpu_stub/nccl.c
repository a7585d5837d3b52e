// A libnccl.so.2 for tests: ranks are processes that meet in a mapped file in STUB_DIR; work runs on the streams of the
// CUDA of the tests; nothing is done at once ("in progress"), as NCCL's communicators that do not block do it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK, SYSTEM = 2, INTERNAL = 3, ARGUMENT = 4, USAGE = 5, REMOTE = 6, BUSY = 7 };
enum { RANKS = 4, AREA = 1 << 16 };

typedef struct {
    char bytes[128];
} unique_id;

typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

typedef struct {
    volatile uint32_t full, bytes;
    char data[AREA];
} box;

typedef struct {
    volatile uint32_t arrived, turn;
    char area[RANKS][AREA];
    box boxes[RANKS][RANKS]; // from, to
} meeting;

typedef struct call {
    struct call *next;
    char name[24];
    const char *send;
    char *recv;
    size_t count;
    int type, op, root;
} call;

typedef struct {
    meeting *m;
    int rank, ranks, polls, done, magic;
    volatile int aborted;
    call *waiting; // queued once NCCL has settled
    void *stream;
    double factors[16];
    int made;
} comm;

static void (*say)(const char *, ...);
static void (*enqueue)(void *, void (*)(void *), void *);
static int (*number)(void *);
static __thread int depth;
static __thread call *open_calls, **open_end;
static __thread comm *open_comm;

static void find(void) {
    if (say) return;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    enqueue = dlsym(cuda, "stub_enqueue");
    number = dlsym(cuda, "stub_number");
    say = dlsym(cuda, "stub_log");
}

static int fails(const char *name) {
    const char *f = getenv("STUB_NCCL_FAIL");
    return f && !strcmp(f, name) ? INTERNAL : OK;
}

static int width(int type) {
    static const int w[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return w[type];
}

static int barrier(comm *c) {
    uint32_t turn = c->m->turn;
    if (__atomic_add_fetch(&c->m->arrived, 1, __ATOMIC_SEQ_CST) == (uint32_t)c->ranks) {
        c->m->arrived = 0;
        __atomic_add_fetch(&c->m->turn, 1, __ATOMIC_SEQ_CST);
    }
    while (c->m->turn == turn) {
        if (c->aborted) return 0;
        usleep(50);
    }
    return 1;
}

static double get(const void *p, int type) {
    switch (type) {
    case 1: return *(const uint8_t *)p;
    case 2: return *(const int32_t *)p;
    case 4: return *(const int64_t *)p;
    case 7: return *(const float *)p;
    case 8: return *(const double *)p;
    }
    return 0;
}

static void set(void *p, int type, double v) {
    switch (type) {
    case 1: *(uint8_t *)p = (uint8_t)v; break;
    case 2: *(int32_t *)p = (int32_t)v; break;
    case 4: *(int64_t *)p = (int64_t)v; break;
    case 7: *(float *)p = (float)v; break;
    case 8: *(double *)p = v; break;
    }
}

static double combine(comm *c, int op, double a, double b) {
    switch (op) {
    case 1: return a * b;
    case 2: return a > b ? a : b;
    case 3: return a < b ? a : b;
    }
    return a + b;
}

// One piece of every rank lies in the areas; what this rank wants of it.
static int reduce(comm *c, call *k, size_t from, size_t n, char *to) {
    int w = width(k->type);
    memcpy(c->m->area[c->rank], k->send + from * w, n * w);
    if (!barrier(c)) return 0;
    if (to)
        for (size_t i = 0; i < n; i++) {
            double v = get(c->m->area[0] + i * w, k->type);
            for (int r = 1; r < c->ranks; r++) v = combine(c, k->op, v, get(c->m->area[r] + i * w, k->type));
            if (k->op == 4) v /= c->ranks;
            if (k->op > 4) v *= c->factors[k->op - 5];
            set(to + i * w, k->type, v);
        }
    return barrier(c);
}

static int gather(comm *c, call *k, size_t from, size_t n) {
    int w = width(k->type);
    memcpy(c->m->area[c->rank], k->send + from * w, n * w);
    if (!barrier(c)) return 0;
    for (int r = 0; r < c->ranks; r++) memcpy(k->recv + (k->count * r + from) * w, c->m->area[r], n * w);
    return barrier(c);
}

static int broadcast(comm *c, call *k, size_t from, size_t n) {
    int w = width(k->type);
    if (c->rank == k->root) memcpy(c->m->area[c->rank], k->send + from * w, n * w);
    if (!barrier(c)) return 0;
    memmove(k->recv + from * w, c->m->area[k->root], n * w);
    return barrier(c);
}

static int collective(comm *c, call *k) {
    int w = width(k->type);
    if (!strcmp(k->name, "ReduceScatter")) {
        for (int r = 0; r < c->ranks; r++)
            for (size_t at = 0; at < k->count; at += AREA / w) {
                size_t n = k->count - at < (size_t)(AREA / w) ? k->count - at : (size_t)(AREA / w);
                if (!reduce(c, k, k->count * r + at, n, r == c->rank ? k->recv + at * w : NULL)) return 0;
            }
        return 1;
    }
    for (size_t at = 0; at < k->count; at += AREA / w) {
        size_t n = k->count - at < (size_t)(AREA / w) ? k->count - at : (size_t)(AREA / w);
        int ok;
        if (!strcmp(k->name, "AllGather")) ok = gather(c, k, at, n);
        else if (!strcmp(k->name, "Broadcast")) ok = broadcast(c, k, at, n);
        else ok = reduce(c, k, at, n, !strcmp(k->name, "AllReduce") || c->rank == k->root ? k->recv + at * w : NULL);
        if (!ok) return 0;
    }
    return 1;
}

// Messages of a group make progress together.
static void messages(comm *c, call *first) {
    for (int left = 1; left && !c->aborted;) {
        left = 0;
        for (call *k = first; k; k = k->next) {
            int w = width(k->type), sends = !strcmp(k->name, "Send");
            if (!k->count || (!sends && strcmp(k->name, "Recv"))) continue;
            left = 1;
            box *b = sends ? &c->m->boxes[c->rank][k->root] : &c->m->boxes[k->root][c->rank];
            if (sends == (int)b->full) continue;
            size_t n = k->count < (size_t)(AREA / w) ? k->count : (size_t)(AREA / w);
            if (sends) {
                memcpy(b->data, k->send, n * w);
                k->send += n * w;
            } else {
                memcpy(k->recv, b->data, n * w);
                k->recv += n * w;
            }
            k->count -= n;
            __atomic_store_n(&b->full, sends, __ATOMIC_SEQ_CST);
        }
        usleep(20);
    }
}

typedef struct {
    comm *c;
    call *calls;
} job;

static void run(void *arg) {
    job *j = arg;
    if (getenv("STUB_NCCL_HANG"))
        while (!j->c->aborted) usleep(200);
    for (call *k = j->calls; k && !j->c->aborted; k = k->next)
        if (strcmp(k->name, "Send") && strcmp(k->name, "Recv") && !collective(j->c, k)) break;
    messages(j->c, j->calls);
}

// ---- NCCL

int ncclGetVersion(int *v) {
    const char *own = getenv("STUB_NCCL_VERSION");
    *v = own ? atoi(own) : 22703;
    return OK;
}
const char *ncclGetErrorString(int code) { return code == REMOTE ? "remote process exited or there was a network error" : "internal error"; }
const char *ncclGetLastError(void *c) { return "stub is told to fail"; }

int ncclGetUniqueId(unique_id *id) {
    find();
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "nccl-%d-%d", getpid(), rand());
    return fails("GetUniqueId");
}

int ncclCommInitRankConfig(comm **out, int ranks, unique_id id, int rank, config *conf) {
    find();
    say("init rank %d of %d size %zu magic %x version %u blocking %d", rank, ranks, conf->size, conf->magic, conf->version, conf->blocking);
    if (fails("CommInitRankConfig")) return SYSTEM;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", getenv("STUB_DIR"), id.bytes);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(meeting))) return SYSTEM;
    comm *c = calloc(1, sizeof *c);
    c->m = mmap(NULL, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    c->rank = rank;
    c->ranks = ranks;
    c->polls = 3;
    c->magic = 4711;
    *out = c;
    return BUSY;
}

int ncclCommGetAsyncError(comm *c, int *state) {
    if (c->magic != 4711) abort(); // used after its end
    const char *async = getenv("STUB_NCCL_ASYNC");
    *state = async && c->done >= atoi(async) ? REMOTE : c->polls > 0 ? BUSY : OK;
    if (c->polls > 0 && --c->polls == 0 && c->waiting) {
        say("queue %s on %d", c->waiting->name, number(c->stream));
        job *j = malloc(sizeof *j);
        *j = (job){c, c->waiting};
        c->waiting = NULL;
        c->done++;
        enqueue(c->stream, run, j);
    }
    return OK;
}

int ncclCommFinalize(comm *c) {
    say("finalize");
    c->polls = 2;
    return BUSY;
}
int ncclCommDestroy(comm *c) {
    say("destroy");
    c->magic = 0;
    return OK;
}
int ncclCommAbort(comm *c) {
    say("abort");
    c->aborted = 1;
    c->magic = 0;
    return OK;
}

int ncclGroupStart(void) {
    if (depth++) return USAGE;
    open_calls = NULL;
    open_end = &open_calls;
    return OK;
}
int ncclGroupEnd(void) {
    depth--;
    if (!open_calls) return OK;
    if (open_comm->polls || open_comm->waiting) {
        say("two at once");
        return USAGE;
    }
    open_comm->waiting = open_calls;
    open_comm->polls = 2;
    return BUSY;
}

static int add(const char *name, const void *send, void *recv, size_t count, int type, int op, int root, comm *c, void *s) {
    int code = fails(name);
    if (!depth) code = USAGE;
    say("%s count %zu type %d op %d root %d on %d%s", name, count, type, op, root, number(s), code ? " refused" : "");
    if (code) return code;
    call *k = calloc(1, sizeof *k);
    *k = (call){.send = send, .recv = recv, .count = count, .type = type, .op = op, .root = root};
    snprintf(k->name, sizeof k->name, "%s", name);
    *open_end = k;
    open_end = &k->next;
    open_comm = c;
    c->stream = s;
    return OK;
}

int ncclAllReduce(const void *a, void *b, size_t n, int t, int op, comm *c, void *s) { return add("AllReduce", a, b, n, t, op, 0, c, s); }
int ncclReduce(const void *a, void *b, size_t n, int t, int op, int root, comm *c, void *s) { return add("Reduce", a, b, n, t, op, root, c, s); }
int ncclBroadcast(const void *a, void *b, size_t n, int t, int root, comm *c, void *s) { return add("Broadcast", a, b, n, t, 0, root, c, s); }
int ncclAllGather(const void *a, void *b, size_t n, int t, comm *c, void *s) { return add("AllGather", a, b, n, t, 0, 0, c, s); }
int ncclReduceScatter(const void *a, void *b, size_t n, int t, int op, comm *c, void *s) { return add("ReduceScatter", a, b, n, t, op, 0, c, s); }
int ncclSend(const void *a, size_t n, int t, int peer, comm *c, void *s) { return add("Send", a, NULL, n, t, 0, peer, c, s); }
int ncclRecv(void *b, size_t n, int t, int peer, comm *c, void *s) { return add("Recv", NULL, b, n, t, 0, peer, c, s); }

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, comm *c) {
    if (residence != 1) return ARGUMENT;
    *op = 5 + c->made % 16;
    c->factors[c->made++ % 16] = type == 7 ? *(float *)scalar : type == 8 ? *(double *)scalar : 0;
    say("scaled %g type %d bits %x", c->factors[*op - 5], type, *(uint16_t *)scalar);
    return OK;
}
int ncclRedOpDestroy(int op, comm *c) {
    say("drop %d", op);
    return c->waiting ? USAGE : OK;
}
