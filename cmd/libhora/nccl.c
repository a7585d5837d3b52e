// NCCL by dlopen. Types here are those of nccl.h from 2.14 on, the oldest release with communicators that do not block.
#define _GNU_SOURCE
#include "nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    char bytes[HORA_NCCL_ID];
} unique_id; // passed by value

// The first layout of ncclConfig_t. Newer releases read as much of it as its size and version say.
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

#define CONFIG_MAGIC 0xcafebeefu
#define CONFIG_VERSION 21400u
#define OLDEST 21400

typedef const void *in;
typedef void *out, *comm_t, *stream_t;

#define FUNCTIONS(F)                                                                          \
    F(version, "ncclGetVersion", (int *))                                                     \
    F(id, "ncclGetUniqueId", (unique_id *))                                                   \
    F(init, "ncclCommInitRankConfig", (comm_t *, int, unique_id, int, config *))              \
    F(state, "ncclCommGetAsyncError", (comm_t, int *))                                        \
    F(finalize, "ncclCommFinalize", (comm_t))                                                 \
    F(destroy, "ncclCommDestroy", (comm_t))                                                   \
    F(abort, "ncclCommAbort", (comm_t))                                                       \
    F(start, "ncclGroupStart", (void))                                                        \
    F(end, "ncclGroupEnd", (void))                                                            \
    F(allreduce, "ncclAllReduce", (in, out, size_t, int, int, comm_t, stream_t))              \
    F(reduce, "ncclReduce", (in, out, size_t, int, int, int, comm_t, stream_t))               \
    F(broadcast, "ncclBroadcast", (in, out, size_t, int, int, comm_t, stream_t))              \
    F(allgather, "ncclAllGather", (in, out, size_t, int, comm_t, stream_t))                   \
    F(reduce_scatter, "ncclReduceScatter", (in, out, size_t, int, int, comm_t, stream_t))     \
    F(send, "ncclSend", (in, size_t, int, int, comm_t, stream_t))                             \
    F(recv, "ncclRecv", (out, size_t, int, int, comm_t, stream_t))                            \
    F(scaled, "ncclRedOpCreatePreMulSum", (int *, void *, int, int, comm_t))                  \
    F(scaled_close, "ncclRedOpDestroy", (int, comm_t))

#define MEMBER(name, symbol, arguments) int(*name) arguments;
static struct {
    FUNCTIONS(MEMBER)
    const char *(*text)(int);
    const char *(*last)(comm_t);
} nccl;

static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static int loaded, version;
static char why[512];

static const char *load(const char *path) {
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (!lib && path && *path) {
        lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!lib) {
            snprintf(why, sizeof why, "load NCCL %s: %s", path, dlerror());
            return why;
        }
    }
    if (!lib) lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return "load NCCL: libnccl.so.2 is neither loaded nor installed";
#define FIND(name, symbol, arguments)                                                                                \
    if (!(*(void **)&nccl.name = dlsym(lib, symbol))) {                                                              \
        snprintf(why, sizeof why, "load NCCL: it has no function %s; version 2.14 or newer is needed", symbol);      \
        return why;                                                                                                  \
    }
    FUNCTIONS(FIND)
    *(void **)&nccl.text = dlsym(lib, "ncclGetErrorString");
    *(void **)&nccl.last = dlsym(lib, "ncclGetLastError");
    if (nccl.version(&version) || version < OLDEST) {
        snprintf(why, sizeof why, "load NCCL: it is version %d.%d; 2.14 or newer is needed", version / 10000, version / 100 % 100);
        return why;
    }
    loaded = 1;
    return NULL;
}

const char *libhora_nccl_load(const char *path) {
    pthread_mutex_lock(&once);
    const char *answer = loaded ? NULL : load(path);
    pthread_mutex_unlock(&once);
    return answer;
}

int libhora_nccl_version(void) { return version; }

const char *libhora_nccl_text(int code) {
    const char *text = nccl.text ? nccl.text(code) : NULL;
    return text ? text : "unknown error";
}

const char *libhora_nccl_last(void *comm) {
    const char *text = nccl.last ? nccl.last(comm) : NULL;
    return text ? text : "";
}

int libhora_nccl_id(char id[HORA_NCCL_ID]) { return nccl.id((unique_id *)id); }

int libhora_nccl_init(void **comm, int ranks, const char id[HORA_NCCL_ID], int rank) {
    unique_id u;
    memcpy(u.bytes, id, sizeof u.bytes);
    config c = {sizeof c, CONFIG_MAGIC, CONFIG_VERSION, 0};
    return nccl.init(comm, ranks, u, rank, &c);
}

int libhora_nccl_state(void *comm) {
    int state = 0, code = nccl.state(comm, &state);
    return code ? code : state;
}

int libhora_nccl_finalize(void *comm) { return nccl.finalize(comm); }
int libhora_nccl_destroy(void *comm) { return nccl.destroy(comm); }
int libhora_nccl_abort(void *comm) { return nccl.abort(comm); }
int libhora_nccl_start(void) { return nccl.start(); }
int libhora_nccl_end(void) { return nccl.end(); }

#define P(x) ((void *)(uintptr_t)(x))

int libhora_nccl_allreduce(uint64_t send, uint64_t recv, uint64_t count, int type, int op, void *comm, uint64_t stream) {
    return nccl.allreduce(P(send), P(recv), count, type, op, comm, P(stream));
}

int libhora_nccl_reduce(uint64_t send, uint64_t recv, uint64_t count, int type, int op, int root, void *comm, uint64_t stream) {
    return nccl.reduce(P(send), P(recv), count, type, op, root, comm, P(stream));
}

int libhora_nccl_broadcast(uint64_t send, uint64_t recv, uint64_t count, int type, int root, void *comm, uint64_t stream) {
    return nccl.broadcast(P(send), P(recv), count, type, root, comm, P(stream));
}

int libhora_nccl_allgather(uint64_t send, uint64_t recv, uint64_t count, int type, void *comm, uint64_t stream) {
    return nccl.allgather(P(send), P(recv), count, type, comm, P(stream));
}

int libhora_nccl_reduce_scatter(uint64_t send, uint64_t recv, uint64_t count, int type, int op, void *comm, uint64_t stream) {
    return nccl.reduce_scatter(P(send), P(recv), count, type, op, comm, P(stream));
}

int libhora_nccl_send(uint64_t send, uint64_t count, int type, int peer, void *comm, uint64_t stream) {
    return nccl.send(P(send), count, type, peer, comm, P(stream));
}

int libhora_nccl_recv(uint64_t recv, uint64_t count, int type, int peer, void *comm, uint64_t stream) {
    return nccl.recv(P(recv), count, type, peer, comm, P(stream));
}

// ---- scaled sums

enum { F16 = 6, F32 = 7, F64 = 8, BF16 = 9, SCALAR_ON_HOST = 1 };

static uint16_t half(float f) { // rounds to even; what is too large becomes infinity
    uint32_t x;
    memcpy(&x, &f, 4);
    uint32_t sign = x >> 16 & 0x8000, a = x & 0x7fffffff;
    if (a >= 0x7f800000) return sign | 0x7c00 | (a > 0x7f800000 ? 0x200 : 0);
    if (a >= 0x477ff000) return sign | 0x7c00;
    if (a < 0x33000001) return sign;
    int e = (int)(a >> 23) - 112;
    uint32_t m = (a & 0x7fffff) | 0x800000;
    int drop = e > 0 ? 13 : 14 - e;
    uint32_t kept = m >> drop, rest = m & ((1u << drop) - 1), middle = 1u << (drop - 1);
    kept += rest > middle || (rest == middle && kept & 1);
    return sign | (uint16_t)(e > 0 ? (uint32_t)((e - 1) << 10) + kept : kept);
}

static uint16_t brain(float f) {
    uint32_t x;
    memcpy(&x, &f, 4);
    return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

int libhora_nccl_scaled(int *op, double factor, int type, void *comm) {
    union {
        double d;
        float f;
        uint16_t h;
    } scalar;
    switch (type) {
    case F64: scalar.d = factor; break;
    case F32: scalar.f = (float)factor; break;
    case F16: scalar.h = half((float)factor); break;
    case BF16: scalar.h = brain((float)factor); break;
    default: return 4; // invalid argument
    }
    return nccl.scaled(op, &scalar, type, SCALAR_ON_HOST, comm);
}

int libhora_nccl_scaled_close(int op, void *comm) { return nccl.scaled_close(op, comm); }
