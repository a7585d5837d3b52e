// Operations of TensorFlow 1's graphs. Such a graph has no order of its own: whatever is ready runs, on a few threads, and a
// kernel that waited there for its peers could keep the very operation that they wait for from a thread. So kernels submit,
// by name, and return; one thread of ours tells TensorFlow what has ended. It is there only while something is under way, and
// it is gone before TensorFlow is: a process that ends takes away what the thread would call.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib.h"
#include "tf.h"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER; // guards what follows
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static work *fresh;   // submitted since the thread looked
static work *under;   // all that are under way, for who looks for ranks that wait for each other
static int watching;  // the thread is there
static int made;      // thread is one that nobody has joined yet
static int leaving;   // the process ends
static pthread_t thread;

// ---- TensorFlow's word that an operation has ended

// A std::function as GNU's library has it: a functor that may be moved byte by byte, what manages it, what calls it.
enum { MANAGER = 2, INVOKER = 3, DESTROY = 3 };
typedef bool (*manager)(void *, void *, int);

// theirs says whether an address lies in one of TensorFlow's libraries: then the words before us are what we take them for.
static int theirs(void *at) {
    Dl_info in;
    return at && dladdr(at, &in) && in.dli_fname && strstr(in.dli_fname, "tensorflow");
}

// keep moves the function away from the stack, which is TensorFlow's until its kernel returns.
static int keep(work *w, tf_done *done) {
    void **words = (void **)done;
    if (!theirs(words[MANAGER]) || !theirs(words[INVOKER])) return -1;
    memcpy(w->done, words, sizeof w->done);
    words[MANAGER] = NULL; // nothing is there any more to destroy
    return 0;
}

static void tell(work *w) {
    void *done[4];
    pthread_mutex_lock(&guard);
    for (work **at = &under; *at; at = &(*at)->after) {
        if (*at != w) continue;
        *at = w->after;
        break;
    }
    pthread_mutex_unlock(&guard);
    memcpy(done, w->done, sizeof done);
    libhora_tf_close(w);
    free(w);
    tf.call((tf_done *)done);
    ((manager)done[MANAGER])(done, done, DESTROY);
}

// ---- the thread

// ended looks whether all of an operation's tickets have; those that have are given back.
static int ended(work *w, uint32_t patience) {
    for (int i = 0; i < (w->many ? w->many : 1); i++) {
        if (!w->tickets[i]) continue;
        int32_t r = hora_wait(w->tickets[i], patience);
        if (r == 1) return 0;
        if (r < 0 && !w->failed) libhora_tf_fail(w);
        if (r == 0 && w->finish && !w->failed) w->finish(w);
        hora_release(w->tickets[i]);
        __atomic_store_n(&w->tickets[i], 0, __ATOMIC_RELAXED);
    }
    return 1;
}

// The thread's own looks are no waits, since it comes back from each; what it waits for is what each of these does.
int libhora_tf_waits(uint64_t *tickets, int64_t *since, int room) {
    int n = 0;
    pthread_mutex_lock(&guard);
    for (work *w = under; w && n >= 0; w = w->after) {
        for (int i = 0; i < (w->many ? w->many : 1); i++) {
            uint64_t ticket = __atomic_load_n(&w->tickets[i], __ATOMIC_RELAXED);
            if (!ticket) continue;
            if (n == room) {
                n = -1;
                break;
            }
            tickets[n] = ticket;
            since[n++] = w->since;
        }
    }
    pthread_mutex_unlock(&guard);
    return n;
}

// idle waits a while for more to watch; false when none came and the thread is to end.
static int idle(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    while (!fresh && !leaving)
        if (pthread_cond_timedwait(&more, &guard, &until)) break;
    return fresh != NULL;
}

static void *watch(void *unused) {
    (void)unused;
    work *all = NULL; // the oldest first
    for (;;) {
        pthread_mutex_lock(&guard);
        if (leaving || (!all && !fresh && !idle())) {
            watching = 0;
            pthread_mutex_unlock(&guard);
            return NULL;
        }
        work **end = &all, *came = fresh;
        fresh = NULL;
        pthread_mutex_unlock(&guard);
        while (*end) end = &(*end)->next;
        while (came) { // the newest came first
            work *w = came;
            came = w->next;
            w->next = *end;
            *end = w;
        }
        int told = 0;
        for (work **at = &all; *at;) {
            work *w = *at;
            if (!ended(w, 0)) {
                at = &w->next;
                continue;
            }
            *at = w->next;
            tell(w);
            told++;
        }
        if (!told && all && ended(all, 1)) { // sleeps at most a millisecond: any other may end meanwhile, or come
            work *w = all;
            all = w->next;
            tell(w);
        }
    }
}

enum { LEAVE_S = 2 }; // how long a process that ends waits for the thread, which TensorFlow may hold up

// leave ends the thread with the process, before TensorFlow's own is taken away: what is registered last runs first. What is
// under way then nobody asks for any more.
static void leave(void) {
    if (libhora_enter() < 0) return; // a forked child has no such thread
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVE_S;
    pthread_mutex_lock(&guard);
    leaving = 1;
    int join = made;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&guard);
    if (join && !pthread_equal(thread, pthread_self())) pthread_timedjoin_np(thread, NULL, &until);
}

// start makes the thread, under guard.
static int start(void) {
    static int told; // the process is to end it
    if (!told && atexit(leave)) return -1;
    told = 1;
    if (made) pthread_join(thread, NULL); // it has said under guard that it ends
    made = pthread_create(&thread, NULL, watch, NULL) == 0;
    if (!made) return -1;
    pthread_setname_np(thread, "hora-later");
    watching = 1;
    return 0;
}

// await hands an operation that was submitted to the thread.
static int await(work *w) {
    pthread_mutex_lock(&guard);
    int bad = !leaving && !watching && start() < 0;
    if (!bad) {
        w->since = libhora_now();
        w->after = under;
        under = w;
        w->next = fresh;
        fresh = w;
        pthread_cond_signal(&more);
    }
    pthread_mutex_unlock(&guard);
    return bad ? -1 : 0;
}

// ---- the kernel

static int submit(work *w) {
    if (w->tickets[0]) return 0; // join did
    int64_t group = libhora_bridge_find((uint64_t)w->node->group);
    if (group >= 0 && hora_submit((uint64_t)group, w->ops, (uint64_t)w->many, w->tickets) == 0) return 0;
    libhora_tf_fail(w);
    return -1;
}

void libhora_tf_later(const node *n, tf_running *run, tf_done *done, tf_begin begin) {
    work *w = calloc(1, sizeof *w);
    if (!w) abort(); // as TensorFlow does: it cannot be told without memory
    *w = (work){.node = n, .run = run, .status = tf.status()};
    if (keep(w, done) < 0) {
        libhora_tf_wrong(w, "run operation: this TensorFlow's graphs and sessions of version 1 are not known to hora; use tf.function, or one of docs/compatibility.md's versions");
    } else if (begin(w) == 0 && submit(w) == 0) {
        if (await(w) == 0) return;
        while (!ended(w, 50)) { // no thread could be started: better this one waits than nobody
        }
    }
    if (w->done[MANAGER]) {
        tell(w);
        return;
    }
    libhora_tf_close(w);
    free(w);
    tf.call(done);
}
