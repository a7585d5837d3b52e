// A grouped allreduce inside what TensorFlow's XLA has compiled for the CPU: a custom call of XLA's, found by name when it
// compiles. The operation XlaCustomCallV2 takes functions of the form of `each`; they are registered by a function of C++'s
// that TensorFlow exports, whose arguments are strings of libstdc++. What a call is stands in a text that hora.tensorflow
// writes. There is no exported function that sets a call's failure, so it is written where the class keeps it; what the
// class itself reads there afterwards is looked at first, and without the same words back nothing is registered.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib.h"
#include "tf.h"

typedef struct {
    char *text;
    size_t n;
    char own[16]; // where text points while it is short
} string; // std::string

typedef struct {
    string message;
    unsigned char set;
} status; // XlaCustomCallStatus_, a std::optional<std::string>

typedef struct {
    size_t n;
    const char *text;
    unsigned char set;
} seen; // std::optional<std::string_view>

static void *(*allocate)(size_t); // operator new: the class gives the text back by operator delete

static void fail(status *s) {
    const char *text = libhora_bridge_told();
    size_t n = strlen(text);
    char *at = n < sizeof s->message.own ? s->message.own : allocate(n + 1);
    memcpy(at, text, n + 1);
    s->message.text = at;
    s->message.n = n;
    if (at != s->message.own) memcpy(s->message.own, &n, sizeof n); // its capacity
    s->set = 1;
}

static void wrong(status *s, const char *text) {
    libhora_fail(HORA_INTERNAL, -1, text, strlen(text));
    fail(s);
}

enum { MOST = 4096, NAME_ROOM = 200, LABEL = 160, XLA_DIMS = 16, REDUCED = 1 };

typedef struct {
    hora_op op;
    int64_t dims[XLA_DIMS];
    char name[NAME_ROOM];
} one;

// each reduces n tensors. opaque: group, op, named, the bits of both factors, n; of each tensor TensorFlow's element type, how
// many dimensions, and those; a new line, the label.
static void each(void *out, const void **in, const char *opaque, size_t length, status *s) {
    if (libhora_enter() < 0) return fail(s);
    const char *bad = "run compiled operation: it was made by another version of hora; trace the function again";
    char *text = strndup(opaque, length), *at = text, *label = text ? strchr(text, '\n') : NULL;
    if (!label) {
        free(text);
        return wrong(s, bad);
    }
    *label++ = 0;
    if (strlen(label) > LABEL) label[LABEL] = 0;
    int64_t head[6];
    for (int i = 0; i < 6; i++) head[i] = strtoll(at, &at, 10);
    int64_t n = head[5];
    one *all = n > 0 && n <= MOST ? calloc((size_t)n, sizeof *all) : NULL;
    hora_op *ops = all ? calloc((size_t)n, sizeof *ops) : NULL;
    if (!ops) {
        free(all), free(text);
        return wrong(s, bad);
    }
    double pre, post;
    memcpy(&pre, &head[3], sizeof pre);
    memcpy(&post, &head[4], sizeof post);
    void **results = out; // never one alone, which would be its memory itself: last is the byte that the next call waits for
    *(uint8_t *)results[n] = 0;
    for (int64_t i = 0; i < n && bad; i++) {
        one *o = &all[i];
        int64_t type = strtoll(at, &at, 10), rank = strtoll(at, &at, 10);
        uint8_t known = libhora_tf_type(type);
        if (!known || rank < 0 || rank > XLA_DIMS) {
            static const char text[] = "run operation: hora does not know this element type";
            libhora_fail(HORA_ARGUMENT, -1, text, sizeof text - 1);
            bad = NULL;
            break;
        }
        uint64_t count = 1;
        for (int64_t d = 0; d < rank; d++) count *= (uint64_t)(o->dims[d] = strtoll(at, &at, 10));
        if (*label && n > 1) snprintf(o->name, sizeof o->name, "%s_%dof%d", label, (int)i + 1, (int)n);
        else snprintf(o->name, sizeof o->name, "%s", label);
        ops[i] = (hora_op){.size = sizeof(hora_op), .kind = REDUCED, .op = (uint8_t)head[1], .dtype = known, .prescale = pre,
                           .postscale = post, .send = (void *)in[i], .count = count, .recv = results[i], .recv_count = count,
                           .shape = o->dims, .ndim = (uint32_t)rank, .name = *o->name ? o->name : NULL,
                           .flags = head[2] ? HORA_NAMED : 0};
    }
    if (!bad || libhora_bridge_run((uint64_t)head[0], ops, (uint64_t)n) < 0) fail(s);
    free(ops), free(all), free(text);
}

// told reports whether XLA reads a failure as it was written.
static int told(seen (*read)(const status *)) {
    static const char *const words[] = {"short", "a sentence that does not lie within the string itself"};
    for (int i = 0; i < 2; i++) {
        status s = {.set = 0};
        if (read(&s).set) return 0;
        libhora_fail(HORA_INTERNAL, -1, words[i], strlen(words[i]));
        fail(&s);
        seen r = read(&s);
        int same = r.set && r.n == strlen(words[i]) && r.text && !memcmp(r.text, words[i], r.n);
        if (s.message.text != s.message.own) {
            void (*give)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "_ZdlPv");
            if (give) give(s.message.text);
        }
        if (!same) return 0;
    }
    return 1;
}

static string words(const char *text) { return (string){(char *)text, strlen(text), ""}; }

int32_t hora_tf_xla(void) {
    static int open;
    if (libhora_enter() < 0) return -1;
    if (open) return 0;
    void *lib = dlopen("libtensorflow_cc.so.2", RTLD_NOW | RTLD_NOLOAD);
    void *(*all)(void) = lib ? dlsym(lib, "_ZN3xla24CustomCallTargetRegistry6GlobalEv") : NULL;
    void (*enter)(void *, const string *, void *, const string *) =
        lib ? dlsym(lib, "_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPvS8_") : NULL;
    seen (*read)(const status *) = lib ? dlsym(lib, "_ZN3xla26CustomCallStatusGetMessageEPK20XlaCustomCallStatus_") : NULL;
    *(void **)&allocate = dlsym(RTLD_DEFAULT, "_Znwm");
    if (!all || !enter || !read || !allocate || !told(read)) {
        const char *text = "compile hora's operations with TensorFlow's XLA: this TensorFlow does not export what takes them; unset HORA_TF_XLA";
        libhora_fail(HORA_SETTINGS, -1, text, strlen(text));
        return -1;
    }
    string name = words("hora_each"), platform = words("Host");
    enter(all(), &name, (void *)each, &platform);
    open = 1;
    return 0;
}
