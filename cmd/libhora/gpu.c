// The C side of the accelerator functions: no forked child gets further than this.
#include "lib.h"

#include <string.h>

#include "_cgo_export.h"

static int null(void) {
    static const char text[] = "call hora: an argument is NULL where a value is needed";
    libhora_fail(HORA_ARGUMENT, -1, text, strlen(text));
    return -1;
}

int64_t hora_gpu(hora_str settings) {
    if (libhora_enter()) return -1;
    return settings ? horaGpu(settings) : null();
}

int64_t hora_gpu_submit(uint64_t gpu, const hora_op *ops, uint64_t n, uint64_t stream) {
    if (libhora_enter()) return -1;
    return ops && n ? horaGpuSubmit(gpu, (hora_op *)ops, n, stream) : null();
}

int32_t hora_gpu_wait(uint64_t gpu, uint64_t ticket, uint64_t stream) {
    return libhora_enter() ? -1 : horaGpuWait(gpu, ticket, stream);
}

int32_t hora_gpu_close(uint64_t gpu) { return libhora_enter() ? -1 : horaGpuClose(gpu); }
