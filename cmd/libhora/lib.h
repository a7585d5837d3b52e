// What the C side of the library and its Go side say to each other. Private: hora.h is the public header.
#ifndef HORA_LIB_H
#define HORA_LIB_H

#include <stdint.h>

#include "hora.h"

// A cell is what a waiter looks at: the state (the ticket's upper half while pending, +1 ended well, +2 failed) and the
// number of threads asleep on it. Package engine lays its tickets out like this too; see engine/ticket.go.
typedef struct {
    uint32_t state, sleepers;
    uint64_t spare;
} hora_cell;

enum { HORA_TABLES = 1 << 16, HORA_CELLS = 1 << 16 };

// libhora_cells is table 0: the tickets of the library itself.
extern hora_cell libhora_cells[HORA_CELLS];

// The table of a group's cells; NULL takes it away. helps: who waits may do the group's work. libhora_idle reports that
// no thread is waiting in it any more.
void libhora_table(uint32_t table, void *cells, int helps);
int libhora_idle(uint32_t table);

// What the threads that have called hora wait for, and since when on libhora_now's clock: their number, -1 where one of
// them does not wait in hora_wait with HORA_FOREVER or there are more than room.
int libhora_threads(uint64_t *tickets, int64_t *since, int room, int *lent, int *others);
void libhora_lent(int yes);
// What graphs of TensorFlow 1 wait for, on no thread of theirs: as libhora_threads.
int libhora_tf_waits(uint64_t *tickets, int64_t *since, int room);
int libhora_seated(uint64_t thread); // whether a thread, by its pthread_t, has called the library
int64_t libhora_now(void);

void libhora_done(uint32_t cell, uint32_t state);
// From now on the process ends with code where its program says 0.
void libhora_verdict(int code);
void libhora_fail(int32_t kind, int32_t rank, const char *text, uint64_t n);
// Answers 0, or -1 with this thread's failure in a forked child.
int libhora_enter(void);

const char *libhora_text(const char *text, uint64_t n);

#endif
