// What the bridges to frameworks share. Private: bridges.h is the public header.
#ifndef HORA_BRIDGE_H
#define HORA_BRIDGE_H

#include <stdint.h>

#include "bridges.h"

// libhora_bridge_find answers the handle that a number stands for, or -1 with this thread's failure.
int64_t libhora_bridge_find(uint64_t number);

// libhora_bridge_place answers a group's rank and size: 0, or -1 with this thread's failure.
int32_t libhora_bridge_place(uint64_t group, int32_t *rank, int32_t *size);

// libhora_bridge_await waits until a ticket's operation has ended: 0, or -1 with this thread's failure. It is still to be released.
int32_t libhora_bridge_await(int64_t ticket);

// libhora_bridge_run runs n operations in order on this thread and waits for each: 0, or -1 with this thread's failure; what
// comes after it is not run.
int32_t libhora_bridge_run(uint64_t number, const hora_op *ops, uint64_t n);

// libhora_bridge_told keeps this thread's failure for hora_bridge_failure and answers its text.
const char *libhora_bridge_told(void);

#endif
