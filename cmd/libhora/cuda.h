// What the Go side calls of CUDA's driver interface. The driver's library is the one part of CUDA whose functions stay
// the same from release to release and that every framework of a process shares, whichever runtime each brings along.
#ifndef HORA_CUDA_H
#define HORA_CUDA_H

#include <stdint.h>

enum { HORA_CUDA_NOT_READY = 600, HORA_CUDA_ABSENT = -1 };

// Loads libcuda once: the copy that the process has loaded, else path (if not NULL), else the system's. Answers NULL or
// why it cannot; the text lives as long as the process.
const char *libhora_cuda_load(const char *path);
const char *libhora_cuda_text(int code);

int libhora_cuda_bus(int device, char *bus, int room);
int libhora_cuda_open(int device, void **context); // the context that frameworks use as well
void libhora_cuda_release(int device);
int libhora_cuda_use(void *context);              // for the calling thread, from now on
int libhora_cuda_push(void *context);             // for the calling thread, until pop
int libhora_cuda_pop(void);

int libhora_cuda_stream(uint64_t *stream);
int libhora_cuda_stream_close(uint64_t stream);
int libhora_cuda_event(uint64_t *event);
int libhora_cuda_event_close(uint64_t event);
int libhora_cuda_record(uint64_t event, uint64_t stream);
int libhora_cuda_await(uint64_t stream, uint64_t event); // the stream waits, the caller does not
int libhora_cuda_query(uint64_t event);                  // 0 ended, HORA_CUDA_NOT_READY, or an error
int libhora_cuda_copy(uint64_t to, uint64_t from, uint64_t bytes, uint64_t stream);
int libhora_cuda_pin(void *memory, uint64_t bytes);
int libhora_cuda_unpin(void *memory);

#endif
