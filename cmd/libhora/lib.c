// The C side: what every function does before Go is entered (is this a forked child?), what a thread's last failure
// was, and waiting, which needs neither Go's scheduler nor a lock once there is nothing to do for operations matched by name.
#define _GNU_SOURCE
#include "lib.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "_cgo_export.h"

#define SLICE_MS 50u

// ---- before Go's threads: package transport/shm has fences of other processes reach this one. The kernel does that at
// once while there is one thread, and takes some 10 ms later.

__attribute__((constructor(101))) static void reach(void) {
    struct stat s;
    if (stat("/proc/self/task", &s) == 0 && s.st_nlink == 3) // two links of the folder's own, and one for each thread
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
}

// ---- forked children: Go's threads are not there. The kernel empties the page in a child, whoever forked it; where it
// cannot, the process id is compared.

static const volatile uint32_t *alive; // points to 1 in the process that loaded the library, to 0 in its children
static pid_t loaded_by;

__attribute__((constructor)) static void born(void) {
    loaded_by = getpid();
#ifdef MADV_WIPEONFORK
    long page = sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    if (madvise(p, (size_t)page, MADV_WIPEONFORK) != 0) {
        munmap(p, (size_t)page);
        return;
    }
    *(uint32_t *)p = 1;
    alive = p;
#endif
}

// ---- which threads have called hora, and what each waits for: package hora looks whether all of them wait for ever

typedef struct seat {
    struct seat *next;
    atomic_int alive;             // its thread has not ended
    atomic_int inside;            // it is in hora_wait
    atomic_int lent;              // for a framework's compiled program, whose other threads may do something else meanwhile
    atomic_uint_least64_t thread; // whose it is
    atomic_uint_least64_t ticket; // that it waits for without a bound of its own; 0: none
    atomic_int_least64_t since;   // when it began to
} seat;

static _Atomic(seat *) seats;
// Every call looks at it, so it lies where no call is needed to find it; Go's own runtime takes such a place as well.
static __thread seat *here __attribute__((tls_model("initial-exec")));
static pthread_key_t seat_key;
static pthread_once_t seat_once = PTHREAD_ONCE_INIT;

static void get_up(void *p) { atomic_store(&((seat *)p)->alive, 0); }
static void make_seat_key(void) { pthread_key_create(&seat_key, get_up); }

// sit_down gives the calling thread a seat, one that an ended thread has left where there is one.
static void __attribute__((noinline)) sit_down(void) {
    pthread_once(&seat_once, make_seat_key);
    seat *s = atomic_load(&seats);
    for (; s; s = s->next) {
        int free = 0;
        if (atomic_compare_exchange_strong(&s->alive, &free, 1)) break;
    }
    if (!s) {
        if (!(s = calloc(1, sizeof *s))) return;
        atomic_store(&s->alive, 1);
        s->next = atomic_load(&seats);
        while (!atomic_compare_exchange_weak(&seats, &s->next, s)) {
        }
    }
    atomic_store(&s->inside, 0);
    atomic_store(&s->lent, 0);
    atomic_store(&s->ticket, 0);
    atomic_store(&s->thread, (uint64_t)(uintptr_t)pthread_self());
    here = s;
    pthread_setspecific(seat_key, s);
}

static inline void sit(void) {
    if (__builtin_expect(!here, 0)) sit_down();
}

int libhora_threads(uint64_t *tickets, int64_t *since, int room, int *lent, int *others) {
    int n = 0;
    *lent = *others = 0;
    for (seat *s = atomic_load(&seats); s; s = s->next) {
        if (!atomic_load(&s->alive)) continue;
        uint64_t ticket = atomic_load(&s->ticket);
        if (!ticket || !atomic_load(&s->inside)) {
            ++*others;
            continue;
        }
        if (n == room) return -1;
        *lent += atomic_load(&s->lent);
        tickets[n] = ticket;
        since[n++] = atomic_load(&s->since);
    }
    int more = libhora_tf_waits(tickets + n, since + n, room - n);
    if (more < 0) return -1;
    *lent += more; // who runs the graph waits for all of them, on a thread that does not wait here
    return n + more;
}

// libhora_lent says whether the calling thread waits for a framework's compiled program.
void libhora_lent(int yes) {
    if (here) atomic_store(&here->lent, yes);
}

int libhora_seated(uint64_t thread) {
    for (seat *s = atomic_load(&seats); s; s = s->next)
        if (atomic_load(&s->alive) && atomic_load(&s->thread) == thread) return 1;
    return 0;
}

static inline int forked(void) { return __builtin_expect(alive ? !*alive : getpid() != loaded_by, 0); }

// ---- this thread's last failure

typedef struct {
    int32_t kind, rank;
    char *text;
    size_t room;
} last;

static __thread last *mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void drop(void *p) {
    free(((last *)p)->text);
    free(p);
}

static void make_key(void) { pthread_key_create(&key, drop); }

static last *own(void) {
    if (!mine) {
        pthread_once(&once, make_key);
        mine = calloc(1, sizeof *mine);
        if (mine) {
            mine->rank = -1;
            pthread_setspecific(key, mine);
        }
    }
    return mine;
}

const char *libhora_text(const char *text, uint64_t n) {
    last *l = own();
    if (!l) return NULL;
    if (l->room < n + 1) {
        char *t = realloc(l->text, n + 1);
        if (!t) return NULL;
        l->text = t;
        l->room = n + 1;
    }
    memcpy(l->text, text, n);
    l->text[n] = 0;
    return l->text;
}

void libhora_fail(int32_t kind, int32_t rank, const char *text, uint64_t n) {
    last *l = own();
    if (!l) return;
    l->kind = kind;
    l->rank = rank;
    libhora_text(text, n);
}

static int fail(int32_t kind, const char *text) {
    libhora_fail(kind, -1, text, strlen(text));
    return -1;
}

static int fail_forked(void) {
    return fail(HORA_FORKED, "use hora: this process is a forked child, and the library's threads live in its parent only; "
                             "start it with spawn or exec, or call hora in the parent");
}

int libhora_enter(void) {
    if (forked()) return fail_forked();
    sit();
    return 0;
}

static int fail_null(void) { return fail(HORA_ARGUMENT, "call hora: an argument is NULL where a value is needed"); }

hora_str hora_last_error(void) { return mine && mine->kind && mine->text ? mine->text : ""; }
int32_t hora_last_kind(void) { return mine ? mine->kind : HORA_OK; }
int32_t hora_last_rank(void) { return mine ? mine->rank : -1; }
int32_t hora_abi(void) { return HORA_ABI; }

// ---- waiting. A ticket is state << 32 | table << 16 | cell.

hora_cell libhora_cells[HORA_CELLS];

static struct {
    _Atomic(hora_cell *) cells;
    atomic_uint users;
    atomic_int helps;
} tables[HORA_TABLES] = {{libhora_cells, 0, 0}};

void libhora_table(uint32_t table, void *cells, int helps) {
    atomic_store(&tables[table].helps, helps);
    atomic_store(&tables[table].cells, cells);
}
int libhora_idle(uint32_t table) { return atomic_load(&tables[table].users) == 0; }

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout) {
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

// libhora_done ends a ticket of the library's own.
void libhora_done(uint32_t cell, uint32_t state) {
    hora_cell *c = &libhora_cells[cell];
    __atomic_store_n(&c->state, state, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->sleepers, __ATOMIC_SEQ_CST)) futex(&c->state, FUTEX_WAKE, INT_MAX, NULL);
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t libhora_now(void) { return now_ns(); }

// look answers 0 pending, 1 ended well, 2 failed, -1 no such ticket.
static int look(hora_cell *c, uint32_t pending) {
    uint32_t past = __atomic_load_n(&c->state, __ATOMIC_ACQUIRE) - pending;
    return past <= 2 ? (int)past : -1;
}

static int await(hora_cell *c, uint32_t pending, uint32_t timeout_ms) {
    int state = look(c, pending);
    if (state || !timeout_ms) return state;
    int64_t end = now_ns() + (int64_t)(timeout_ms < SLICE_MS ? timeout_ms : SLICE_MS) * 1000000;
    __atomic_add_fetch(&c->sleepers, 1, __ATOMIC_SEQ_CST);
    while ((state = look(c, pending)) == 0) {
        int64_t left = end - now_ns();
        if (left <= 0) break;
        struct timespec t = {left / 1000000000, left % 1000000000};
        if (futex(&c->state, FUTEX_WAIT, pending, &t) != 0 && errno == EINTR) break; // a signal: let its handler run
    }
    __atomic_sub_fetch(&c->sleepers, 1, __ATOMIC_SEQ_CST);
    return state;
}

// help does the group's work while the ticket is pending, and answers how many milliseconds are left.
static uint32_t help(hora_cell *c, uint64_t ticket, uint32_t timeout_ms) {
    if (look(c, (uint32_t)(ticket >> 32))) return 0;
    if (timeout_ms > SLICE_MS) timeout_ms = SLICE_MS;
    int64_t begun = now_ns();
    horaHelp(ticket, timeout_ms);
    int64_t took = (now_ns() - begun) / 1000000;
    return took < timeout_ms ? timeout_ms - (uint32_t)took : 0;
}

int32_t hora_wait(uint64_t ticket, uint32_t timeout_ms) {
    if (forked()) return fail_forked();
    uint32_t table = (uint32_t)(ticket >> 16) & 0xffff;
    sit();
    if (here && timeout_ms) {
        if (timeout_ms != HORA_FOREVER) atomic_store(&here->ticket, 0);
        else if (atomic_load(&here->ticket) != ticket) {
            atomic_store(&here->since, now_ns());
            atomic_store(&here->ticket, ticket);
        }
        atomic_store(&here->inside, 1);
    }
    atomic_fetch_add(&tables[table].users, 1);
    hora_cell *cells = atomic_load(&tables[table].cells);
    if (cells && timeout_ms && atomic_load(&tables[table].helps)) timeout_ms = help(&cells[ticket & 0xffff], ticket, timeout_ms);
    int state = cells ? await(&cells[ticket & 0xffff], (uint32_t)(ticket >> 32), timeout_ms) : -1;
    atomic_fetch_sub(&tables[table].users, 1);
    if (here && timeout_ms) atomic_store(&here->inside, 0);
    if (state == 1) return 0;
    if (state == 0) return 1;
    if (state == 2) {
        horaFailed(ticket);
        return -1;
    }
    return fail(HORA_CLOSED, "wait for operation: its handle was released, or its group was closed meanwhile");
}

// ---- the end of a process whose program has ended well although its calls were wrong

static int verdict;

static void judge(int status, void *unused) {
    (void)unused;
    if (status == 0 && verdict && !forked()) {
        fflush(NULL);
        _exit(verdict);
    }
}

void libhora_verdict(int code) {
    if (!verdict) on_exit(judge, NULL);
    verdict = code;
}

// ---- the rest goes to Go

#define ENTER(bad) \
    if (forked()) return fail_forked(), (bad); \
    sit()
#define NEED(p, bad) \
    if (!(p)) return fail_null(), (bad)

hora_str hora_build(void) {
    if (forked()) return "";
    return horaBuild();
}

int64_t hora_init(hora_str settings) {
    ENTER(-1);
    NEED(settings, -1);
    return horaInit(settings);
}

int64_t hora_shutdown(void) {
    ENTER(-1);
    return horaShutdown();
}

hora_str hora_info(uint64_t group) {
    ENTER(NULL);
    return horaInfo(group);
}

int64_t hora_group(hora_str settings) {
    ENTER(-1);
    NEED(settings, -1);
    return horaGroup(settings);
}

int32_t hora_group_close(uint64_t group) {
    ENTER(-1);
    return horaGroupClose(group);
}

int32_t hora_abort(uint64_t group, hora_str reason) {
    ENTER(-1);
    NEED(reason, -1);
    return horaAbort(group, reason);
}

int64_t hora_run(uint64_t group, const hora_op *op) {
    ENTER(-1);
    NEED(op, -1);
    return horaRun(group, (hora_op *)op);
}

int32_t hora_submit(uint64_t group, const hora_op *ops, uint64_t n, uint64_t *tickets) {
    ENTER(-1);
    if (!n) return 0;
    NEED(ops && tickets, -1);
    return horaSubmit(group, (hora_op *)ops, n, tickets);
}

int64_t hora_plan(uint64_t group, const hora_op *op) {
    ENTER(-1);
    NEED(op, -1);
    return horaPlan(group, (hora_op *)op);
}

int64_t hora_start(uint64_t plan) {
    ENTER(-1);
    return horaStart(plan);
}

int64_t hora_start_async(uint64_t plan) {
    ENTER(-1);
    return horaStartAsync(plan);
}

int32_t hora_plan_close(uint64_t plan) {
    ENTER(-1);
    return horaPlanClose(plan);
}

int64_t hora_join(uint64_t group) {
    ENTER(-1);
    return horaJoin(group);
}

int32_t hora_result(uint64_t ticket, hora_outcome *out) {
    ENTER(-1);
    NEED(out, -1);
    return horaResult(ticket, out);
}

int32_t hora_release(uint64_t ticket) {
    ENTER(-1);
    return horaRelease(ticket);
}

int64_t hora_buffer(uint64_t group, uint64_t bytes) {
    ENTER(-1);
    return horaBuffer(group, bytes);
}

int64_t hora_register(uint64_t group, void *at, uint64_t bytes, int32_t fd, uint64_t offset, uint32_t flags) {
    ENTER(-1);
    NEED(at, -1);
    return horaRegister(group, at, bytes, fd, offset, flags);
}

int32_t hora_buffer_close(uint64_t buffer) {
    ENTER(-1);
    return horaBufferClose(buffer);
}

int32_t hora_news(void) {
    ENTER(-1);
    return horaNews();
}

int64_t hora_action(hora_str settings) {
    ENTER(-1);
    NEED(settings, -1);
    return horaAction(settings);
}
