// What compiled programs of every framework need: groups by number, running operations to their end on a thread that
// is not the library's, and the failures that a framework was told, which it passes on as a class of its own.
#define _GNU_SOURCE
#include "bridge.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "lib.h"

// ---- numbers. Programs look them up without a lock; makers set them one after another.

enum { NUMBERS = 4096 };
static _Atomic(uint64_t) numbers[NUMBERS];

static int refuse(const char *text) {
    libhora_fail(HORA_ARGUMENT, -1, text, strlen(text));
    return -1;
}

int32_t hora_bridge_group(uint64_t number, uint64_t group) {
    if (libhora_enter() < 0) return -1;
    if (number == 0 || number >= NUMBERS) return refuse("make group: a compiled program names groups by numbers from 1 to 4095; close some groups");
    atomic_store(&numbers[number], group);
    return 0;
}

int64_t libhora_bridge_find(uint64_t number) {
    if (number == 0) return 0;
    uint64_t group = number < NUMBERS ? atomic_load(&numbers[number]) : 0;
    if (group) return (int64_t)group;
    const char *text = "use group: a compiled program names one that is not there any more; make the group again and trace the program anew";
    libhora_fail(HORA_CLOSED, -1, text, strlen(text));
    return -1;
}

int32_t libhora_bridge_place(uint64_t group, int32_t *rank, int32_t *size) { return horaPlace(group, rank, size); }

// ---- running

int32_t libhora_bridge_await(int64_t ticket) {
    int32_t r;
    while ((r = hora_wait((uint64_t)ticket, HORA_FOREVER)) == 1) libhora_lent(1);
    libhora_lent(0);
    return r;
}

static int32_t finish(int64_t ticket) {
    int32_t r = libhora_bridge_await(ticket);
    hora_release((uint64_t)ticket);
    return r;
}

// run_named submits all before it waits for any: what is matched by name is agreed on and packed together.
static int32_t run_named(uint64_t group, const hora_op *ops, uint64_t n) {
    uint64_t *tickets = calloc(n, sizeof *tickets);
    if (!tickets) return refuse("run operations: out of memory");
    int32_t bad = hora_submit(group, ops, n, tickets);
    if (bad < 0) {
        free(tickets);
        return -1;
    }
    for (uint64_t i = n; i-- > 0;) // the last one's failure is told last, and the first one's is the cause
        if (finish((int64_t)tickets[i]) < 0) bad = -1;
    free(tickets);
    return bad;
}

int32_t libhora_bridge_run(uint64_t number, const hora_op *ops, uint64_t n) {
    int64_t group = libhora_bridge_find(number);
    if (group < 0) return -1;
    if (n > 1 && ops[0].flags & HORA_NAMED) return run_named((uint64_t)group, ops, n);
    // One after another on this thread, which waits anyway: a hand-over to the group's worker costs more than most
    // operations. A mismatch is every rank's, in the same operation: all stop there, and the next call works.
    for (uint64_t i = 0; i < n; i++) {
        int64_t ticket = hora_run((uint64_t)group, &ops[i]);
        if (ticket > 0) ticket = finish(ticket);
        if (ticket < 0) return -1;
    }
    return 0;
}

// ---- the failures that a framework was told

// Of many operations under way at once a framework tells its program of one, and not of the last that failed.
enum { KEPT = 1024 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; // guards what follows
static struct {
    int32_t kind, rank;
    char *text;
} told[KEPT];
static uint32_t tellings; // the newest is told[(tellings - 1) % KEPT]

const char *libhora_bridge_told(void) {
    const char *text = hora_last_error();
    char *copy = strndup(text, 1023);
    if (!copy) return text;
    pthread_mutex_lock(&guard);
    uint32_t at = tellings++ % KEPT;
    free(told[at].text);
    told[at].text = copy;
    told[at].kind = hora_last_kind();
    told[at].rank = hora_last_rank();
    pthread_mutex_unlock(&guard);
    return text;
}

hora_str hora_bridge_failure(hora_str within, int32_t *kind, int32_t *rank) {
    if (libhora_enter() < 0) return "";
    const char *text = "";
    size_t most = 0;
    uint32_t found = 0;
    pthread_mutex_lock(&guard);
    for (uint32_t i = 1; i <= KEPT; i++) {
        uint32_t at = (tellings - i) % KEPT;
        if (!told[at].text) break;
        size_t n = strlen(told[at].text);
        if (n <= most || !strstr(within, told[at].text)) continue;
        most = n; // "… rank 1" stands in "… rank 12" too: the longest is meant
        found = at;
    }
    if (most) {
        *kind = told[found].kind;
        *rank = told[found].rank;
        text = libhora_text(told[found].text, most);
    }
    pthread_mutex_unlock(&guard);
    return text ? text : "";
}
