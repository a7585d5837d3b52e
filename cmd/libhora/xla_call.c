// One call of hora's inside a program that XLA compiled, whichever way XLA handed it over.
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "xla.h"

enum { FEW = 32, LABEL = 160, NAME = 200 };

int32_t libhora_xla_wrong(const char *text) {
    libhora_fail(HORA_INTERNAL, -1, text, strlen(text));
    return -1;
}

static double real(int64_t bits) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static uint64_t count(const xla_array *a) {
    uint64_t n = 1;
    for (int64_t i = 0; i < a->rank; i++) n *= (uint64_t)a->dims[i];
    return n;
}

// turn says how many have been here before, and -1 where another came meanwhile: two that XLA does not keep in order
// may each be first.
static int32_t turn(void) {
    static _Atomic(int32_t) turns;
    int32_t mine = atomic_fetch_add(&turns, 1);
    for (int i = 0; i < 20; i++) sched_yield();
    return atomic_load(&turns) == mine + 1 ? mine : -1;
}

int32_t libhora_xla_answer(const int64_t *call, int32_t *at) {
    if (call[CALL_KIND] == CALL_COUNT) {
        *at = turn();
        return 0;
    }
    int64_t group = libhora_bridge_find((uint64_t)call[CALL_GROUP]);
    int32_t rank, size;
    if (group < 0 || libhora_bridge_place((uint64_t)group, &rank, &size) < 0) return -1;
    *at = call[CALL_KIND] == CALL_RANK ? rank : size;
    return 0;
}

int32_t libhora_xla_run(const int64_t *call, uint8_t flags, const char *name, size_t length, const xla_array *arrays,
                        int64_t n) {
    hora_op few[FEW], *ops = few;
    char few_names[FEW][NAME], (*names)[NAME] = few_names;
    int64_t made = n ? n : 1; // a barrier has no arrays
    if (made > FEW) {
        ops = malloc((size_t)made * sizeof *ops);
        names = malloc((size_t)made * sizeof *names);
    }
    int32_t bad = ops && names ? 0 : libhora_xla_wrong("run compiled operation: out of memory");
    if (length > LABEL) length = LABEL;
    for (int64_t i = 0; i < made && !bad; i++) {
        hora_op *o = &ops[i];
        *o = (hora_op){.size = sizeof *o, .kind = (uint8_t)call[CALL_KIND], .op = (uint8_t)call[CALL_OP],
                       .flags = flags, .root = (int32_t)call[CALL_ROOT], .prescale = real(call[CALL_PRE]),
                       .postscale = real(call[CALL_POST])};
        if (length) {
            // The number of arrays is in each name, and names are compared: calls of different lengths are told apart.
            if (made > 1) snprintf(names[i], NAME, "%.*s_%dof%d", (int)length, name, (int)i + 1, (int)made);
            else snprintf(names[i], NAME, "%.*s", (int)length, name);
            o->name = names[i];
        }
        if (!n) continue;
        const xla_array *a = &arrays[i];
        if (!a->dtype) {
            static const char text[] = "run compiled operation: its element type is not one that hora sums";
            libhora_fail(HORA_ARGUMENT, -1, text, sizeof text - 1);
            bad = -1;
            break;
        }
        o->dtype = a->dtype;
        o->send = a->send;
        o->recv = a->recv;
        o->count = count(a);
        o->recv_count = a->recv_count;
        o->shape = a->dims;
        o->ndim = (uint32_t)a->rank;
    }
    if (!bad) bad = libhora_bridge_run((uint64_t)call[CALL_GROUP], ops, (uint64_t)made);
    if (ops != few) free(ops);
    if (names != few_names) free(names);
    return bad;
}
