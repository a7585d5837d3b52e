// What hora_data.h's functions do before Go is entered.
#include "hora_data.h"

#include "lib.h"

#include "_cgo_export.h"

int32_t hora_data_next(uint64_t data, uint32_t timeout_ms, hora_batch *out) {
    static const char null[] = "read data: the batch's structure is NULL";
    if (libhora_enter()) return -1;
    if (!out) return libhora_fail(HORA_ARGUMENT, -1, null, sizeof null - 1), -1;
    return horaDataNext(data, timeout_ms, out);
}

int32_t hora_data_release(uint64_t batch) {
    if (libhora_enter()) return -1;
    return horaDataRelease(batch);
}
