// What the Go side calls of NCCL. All functions answer NCCL's result: 0 is success, 7 is "in progress".
#ifndef HORA_NCCL_H
#define HORA_NCCL_H

#include <stdint.h>

enum { HORA_NCCL_ID = 128, HORA_NCCL_IN_PROGRESS = 7 };

// Loads libnccl.so.2 once: the copy that the process has loaded, else path (if not NULL), else the system's. Answers
// NULL or why it cannot.
const char *libhora_nccl_load(const char *path);
int libhora_nccl_version(void);
const char *libhora_nccl_text(int code);
const char *libhora_nccl_last(void *comm); // NCCL's own words on its last failure, "" when it has none

int libhora_nccl_id(char id[HORA_NCCL_ID]);
int libhora_nccl_init(void **comm, int ranks, const char id[HORA_NCCL_ID], int rank); // does not block: poll state
int libhora_nccl_state(void *comm);
int libhora_nccl_finalize(void *comm);
int libhora_nccl_destroy(void *comm);
int libhora_nccl_abort(void *comm);
int libhora_nccl_start(void);
int libhora_nccl_end(void);

// op is NCCL's number of an operator, or one that libhora_nccl_scaled made.
int libhora_nccl_allreduce(uint64_t send, uint64_t recv, uint64_t count, int type, int op, void *comm, uint64_t stream);
int libhora_nccl_reduce(uint64_t send, uint64_t recv, uint64_t count, int type, int op, int root, void *comm, uint64_t stream);
int libhora_nccl_broadcast(uint64_t send, uint64_t recv, uint64_t count, int type, int root, void *comm, uint64_t stream);
int libhora_nccl_allgather(uint64_t send, uint64_t recv, uint64_t count, int type, void *comm, uint64_t stream);
int libhora_nccl_reduce_scatter(uint64_t send, uint64_t recv, uint64_t count, int type, int op, void *comm, uint64_t stream);
int libhora_nccl_send(uint64_t send, uint64_t count, int type, int peer, void *comm, uint64_t stream);
int libhora_nccl_recv(uint64_t recv, uint64_t count, int type, int peer, void *comm, uint64_t stream);

// An operator that multiplies by factor before it adds; factor is converted to type.
int libhora_nccl_scaled(int *op, double factor, int type, void *comm);
int libhora_nccl_scaled_close(int op, void *comm);

#endif
