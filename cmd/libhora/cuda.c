// CUDA's driver interface by dlopen: streams, events, copies and pinned memory. Nothing of it is needed to build.
#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FUNCTIONS(F)                                                    \
    F(init, "cuInit", (unsigned))                                       \
    F(device, "cuDeviceGet", (int *, int))                              \
    F(bus, "cuDeviceGetPCIBusId", (char *, int, int))                   \
    F(retain, "cuDevicePrimaryCtxRetain", (void **, int))               \
    F(release, "cuDevicePrimaryCtxRelease_v2", (int))                   \
    F(use, "cuCtxSetCurrent", (void *))                                 \
    F(push, "cuCtxPushCurrent_v2", (void *))                            \
    F(pop, "cuCtxPopCurrent_v2", (void **))                             \
    F(stream, "cuStreamCreate", (void **, unsigned))                    \
    F(stream_close, "cuStreamDestroy_v2", (void *))                     \
    F(event, "cuEventCreate", (void **, unsigned))                      \
    F(event_close, "cuEventDestroy_v2", (void *))                       \
    F(record, "cuEventRecord", (void *, void *))                        \
    F(await, "cuStreamWaitEvent", (void *, void *, unsigned))           \
    F(query, "cuEventQuery", (void *))                                  \
    F(copy, "cuMemcpyAsync", (uint64_t, uint64_t, size_t, void *))      \
    F(pin, "cuMemHostRegister_v2", (void *, size_t, unsigned))          \
    F(unpin, "cuMemHostUnregister", (void *))                           \
    F(text, "cuGetErrorString", (int, const char **))

#define MEMBER(name, symbol, arguments) int(*name) arguments;
static struct {
    FUNCTIONS(MEMBER)
} cu;

static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static int loaded;
static char why[512];

#define STREAM_NON_BLOCKING 1u // a stream of ours does not wait for the legacy default stream
#define EVENT_NO_TIMING 2u
#define PIN_PORTABLE 1u

static const char *load(const char *path) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!lib && path && *path) {
        lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (!lib) {
            snprintf(why, sizeof why, "load CUDA's driver %s: %s", path, dlerror());
            return why;
        }
    }
    if (!lib) lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!lib) return "load CUDA's driver: libcuda.so.1 is not on this machine; install NVIDIA's driver, or keep tensors in host memory";
#define FIND(name, symbol, arguments)                                                                              \
    if (!(*(void **)&cu.name = dlsym(lib, symbol))) {                                                              \
        snprintf(why, sizeof why, "load CUDA's driver: it has no function %s; version 11.0 or newer is needed", symbol); \
        return why;                                                                                                \
    }
    FUNCTIONS(FIND)
    int code = cu.init(0);
    if (code) {
        snprintf(why, sizeof why, "start CUDA's driver: %s", libhora_cuda_text(code));
        return why;
    }
    loaded = 1;
    return NULL;
}

const char *libhora_cuda_load(const char *path) {
    pthread_mutex_lock(&once);
    const char *answer = loaded ? NULL : load(path);
    pthread_mutex_unlock(&once);
    return answer;
}

const char *libhora_cuda_text(int code) {
    const char *text = NULL;
    if (cu.text && cu.text(code, &text) == 0 && text) return text;
    return "unknown error";
}

int libhora_cuda_bus(int device, char *bus, int room) {
    int d, code = cu.device(&d, device);
    return code ? code : cu.bus(bus, room, d);
}

int libhora_cuda_open(int device, void **context) {
    int d, code = cu.device(&d, device);
    return code ? code : cu.retain(context, d);
}

void libhora_cuda_release(int device) {
    int d;
    if (cu.device(&d, device) == 0) cu.release(d);
}

int libhora_cuda_use(void *context) { return cu.use(context); }
int libhora_cuda_push(void *context) { return cu.push(context); }

int libhora_cuda_pop(void) {
    void *was;
    return cu.pop(&was);
}

int libhora_cuda_stream(uint64_t *stream) {
    void *s = NULL;
    int code = cu.stream(&s, STREAM_NON_BLOCKING);
    *stream = (uint64_t)(uintptr_t)s;
    return code;
}

int libhora_cuda_event(uint64_t *event) {
    void *e = NULL;
    int code = cu.event(&e, EVENT_NO_TIMING);
    *event = (uint64_t)(uintptr_t)e;
    return code;
}

#define P(x) ((void *)(uintptr_t)(x))
int libhora_cuda_stream_close(uint64_t stream) { return cu.stream_close(P(stream)); }
int libhora_cuda_event_close(uint64_t event) { return cu.event_close(P(event)); }
int libhora_cuda_record(uint64_t event, uint64_t stream) { return cu.record(P(event), P(stream)); }
int libhora_cuda_await(uint64_t stream, uint64_t event) { return cu.await(P(stream), P(event), 0); }
int libhora_cuda_query(uint64_t event) { return cu.query(P(event)); }
int libhora_cuda_copy(uint64_t to, uint64_t from, uint64_t bytes, uint64_t stream) { return cu.copy(to, from, bytes, P(stream)); }
int libhora_cuda_pin(void *memory, uint64_t bytes) { return cu.pin(memory, bytes, PIN_PORTABLE); }
int libhora_cuda_unpin(void *memory) { return cu.unpin(memory); }
