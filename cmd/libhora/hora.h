/* hora.h: the C interface of libhora, for every language that can call C.
 *
 * Rules that hold for all functions:
 *  - Handles (groups, plans, tickets, buffers) are opaque numbers; 0 is the world where a group is meant.
 *  - Functions answer 0 (or a value > 0 where stated) and -1 on failure; hora_last_error and hora_last_kind then
 *    describe this thread's last failure.
 *  - Nothing blocks longer than 50 ms: what takes longer answers with a ticket, to be given to hora_wait in a loop.
 *  - Memory handed over stays the caller's and must live until the operation has ended (hora_wait answered 0 or -1).
 *  - Arguments that grow are JSON texts. Structures begin with their size.
 *  - Every function may be called from every thread. In a child made by fork that has not called exec all fail with
 *    HORA_FORKED: the library's threads do not exist there.
 */
#ifndef HORA_H
#define HORA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes whenever a caller built for the old header could go wrong. */
#define HORA_ABI 1

typedef const char *hora_str;

/* What hora_last_kind answers. */
enum hora_kind {
    HORA_OK = 0,
    HORA_ARGUMENT = 1,        /* this call is wrong; nothing was sent */
    HORA_NOT_INITIALIZED = 2, /* before hora_init or after hora_shutdown */
    HORA_MISMATCH = 3,        /* the ranks asked for different things; work can go on */
    HORA_PEER_LOST = 4,       /* another rank has ended or cannot be reached */
    HORA_DEADLINE = 5,        /* an operation's deadline passed */
    HORA_CLOSED = 6,          /* the group was closed or aborted meanwhile */
    HORA_FORKED = 7,          /* a forked child: use spawn */
    HORA_SETTINGS = 8,        /* environment or settings cannot be used */
    HORA_INTERNAL = 9,        /* a fault of hora */
    HORA_FAILED = 10,         /* anything else; the text says what */
    HORA_FINISHED = 11,       /* an elastic job's work was done before this worker could join: end well */
    HORA_DRAINED = 12         /* this worker was asked to leave while it waited for an epoch, and has left: end */
};

/* hora_op.flags */
#define HORA_NAMED 1u /* match by name, in any order */
#define HORA_SIZES 2u /* exchange sizes first and allocate the result; see hora_result */
#define HORA_COUNTED 4u /* the name counts the caller's calls and does not come again; where it ends in a dot and a number, the next call's differs in that alone. Alike on all ranks */

/* One operation. Kinds, operators and element types are numbered as in docs/abi.md.
 *   count elements at send, recv_count at recv; in place where the kind allows: recv == send.
 *   send_counts and recv_counts (elements for each rank) or NULL for equal parts.
 *   root is the root's, the destination's or the source's rank in the group; -1 receives from any rank. */
typedef struct hora_op {
    uint32_t size; /* sizeof(hora_op) */
    uint8_t kind, op, dtype, flags;
    int32_t root;
    uint32_t tag;               /* of send and recv */
    double prescale, postscale; /* 0 means 1 */
    uint64_t timeout_ms;        /* 0: the group's */
    uint64_t budget_us;         /* how long hora_run stays on this thread before it hands over; 0: 50 ms */
    uint64_t row;               /* with HORA_SIZES: elements of one row of the first dimension */
    const void *send;
    void *recv;
    uint64_t count, recv_count;
    const int64_t *send_counts, *recv_counts;
    const int64_t *shape; /* compared between ranks and named in messages; NULL: counts only */
    uint32_t ndim;
    uint32_t device; /* where the caller's tensor lives: 0 the host, 1+i accelerator i */
    hora_str name;   /* NULL: none; required with HORA_NAMED */
} hora_op;

/* What an ended operation left behind. Valid until hora_release; memory until hora_buffer_close(buffer). */
typedef struct hora_outcome {
    uint32_t size;   /* sizeof(hora_outcome) */
    uint32_t ncount; /* how many of counts */
    int64_t value;   /* join: the last rank; recv from any: the source; hora_group: the group */
    void *memory;    /* HORA_SIZES and hora_buffer: the memory, else NULL */
    uint64_t bytes;
    uint64_t buffer; /* handle of that memory, for hora_buffer_close */
    const int64_t *counts; /* HORA_SIZES: elements from each rank */
} hora_outcome;

/* -- the library */
int32_t hora_abi(void);          /* HORA_ABI of the library */
hora_str hora_build(void);       /* version and build, one line */
hora_str hora_last_error(void);  /* this thread's last failure, "" when none; valid until its next call */
int32_t hora_last_kind(void);    /* enum hora_kind of it */
int32_t hora_last_rank(void);    /* the rank it names, -1 when none */

/* -- the job. settings: {"env": {…}, "settings": {"rank": 0, …}}; docs/environment.md names them */
int64_t hora_init(hora_str settings); /* > 0: ticket; 0: was initialized already */
int64_t hora_shutdown(void);          /* > 0: ticket; 0: was not initialized */
hora_str hora_info(uint64_t group);   /* JSON: ranks, hosts, counters; valid until this thread's next call; NULL on failure */

/* -- groups. {"ranks": […], "tag": "…", "timeout": seconds}, called by the members; the ticket's outcome holds the handle */
int64_t hora_group(hora_str settings);
int32_t hora_group_close(uint64_t group);
int32_t hora_abort(uint64_t group, hora_str reason); /* end all pending and later operations, on this rank */

/* -- operations */
int64_t hora_run(uint64_t group, const hora_op *op);   /* 0: done, inline; > 0: ticket to wait for */
int32_t hora_submit(uint64_t group, const hora_op *ops, uint64_t n, uint64_t *tickets); /* all or none */
int64_t hora_plan(uint64_t group, const hora_op *op);  /* > 0: a plan: op and its counts and name are copied */
int64_t hora_start(uint64_t plan);                     /* as hora_run */
int64_t hora_start_async(uint64_t plan);               /* > 0: ticket */
int32_t hora_plan_close(uint64_t plan);
int64_t hora_join(uint64_t group);                     /* > 0: ticket */

/* -- tickets */
#define HORA_FOREVER 0xffffffffu /* as timeout_ms: the caller waits again until the operation has ended, whatever comes */
int32_t hora_wait(uint64_t ticket, uint32_t timeout_ms); /* 0: ended well; 1: not yet (after ≤ 50 ms); -1: failed */
int32_t hora_result(uint64_t ticket, hora_outcome *out);
int32_t hora_release(uint64_t ticket);                   /* ended or not: an operation still runs to its end */

/* -- memory that every rank of this host maps */
int64_t hora_buffer(uint64_t group, uint64_t bytes); /* > 0: ticket */
int64_t hora_register(uint64_t group, void *at, uint64_t bytes, int32_t fd, uint64_t offset, uint32_t flags); /* memory mapped from fd by the caller, until hora_buffer_close(outcome.buffer); flags: 0, or HORA_NAMED for operations matched by name */
int32_t hora_buffer_close(uint64_t buffer);

/* -- elastic jobs and more. {"action": "next" | "finish" | "drain" | "leave" | "recovered" | "start_timeline" | "stop_timeline" | "parts" | "exit" | "data_…", …}, see docs/abi.md */
int32_t hora_news(void);                /* 0: none; 1: join the next epoch; 2: leave; 3, 4, 5: nothing to do yet, but workers are on their way, ranks were asked to leave, or both; -1: the epoch is over, hora_last_error says why */
int64_t hora_action(hora_str settings); /* > 0: ticket; 0: done */

/* -- tensors in a GPU's memory. {"group": 0, "device": 0, "path": "auto"|"nccl"|"staged", …}, called by all members in one
 * order; the outcome's value is the handle, its memory a JSON text that says which path was taken and why */
int64_t hora_gpu(hora_str settings); /* > 0: ticket */
int64_t hora_gpu_submit(uint64_t gpu, const hora_op *ops, uint64_t n, uint64_t stream); /* > 0: one ticket; begins when stream has come to this point */
int32_t hora_gpu_wait(uint64_t gpu, uint64_t ticket, uint64_t stream); /* 0: what stream does next comes after it; 1: not yet (after ≤ 50 ms); -1: failed */
int32_t hora_gpu_close(uint64_t gpu);

#ifdef __cplusplus
}
#endif
#endif
