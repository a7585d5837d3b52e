// What the two interfaces of XLA's custom calls share: a call of hora's as its handler finds it. Private: bridges.h is
// the public header.
#ifndef HORA_XLA_H
#define HORA_XLA_H

#include <stddef.h>
#include <stdint.h>

#include "bridge.h"

// What hora.jax and hora.tensorflow write into a program of a call.
enum { CALL_KIND, CALL_OP, CALL_GROUP, CALL_ROOT, CALL_PRE, CALL_POST, CALL_FIELDS }; // both factors as a double's bits

// Kinds beside hora.h's, which answer one int32: who this process is, and how many calls of kind COUNT came before.
enum { CALL_RANK = 100, CALL_SIZE = 101, CALL_COUNT = 102 };

typedef struct {
    uint8_t dtype; // hora's number; 0 for one that hora does not know
    const void *send;
    void *recv;
    uint64_t recv_count; // elements
    const int64_t *dims;
    int64_t rank;
} xla_array;

// libhora_xla_run makes one operation of each array and runs them: 0, or -1 with this thread's failure. A call without
// arrays is one operation too. The name need not end in 0.
int32_t libhora_xla_run(const int64_t *call, uint8_t flags, const char *name, size_t length, const xla_array *arrays,
                        int64_t n);

// libhora_xla_answer answers a call of the kinds above: 0, or -1 with this thread's failure.
int32_t libhora_xla_answer(const int64_t *call, int32_t *at);

// libhora_xla_wrong sets this thread's failure to a fault of hora's and answers -1.
int32_t libhora_xla_wrong(const char *text);

// The older interface, where a call is a text: an XlaCustomCallStatus_, which is a std::optional<std::string> of
// libstdc++.
typedef struct {
    struct {
        char *text;
        size_t n;
        char own[16]; // where text points while it is short
    } message;
    unsigned char set;
} xla_status;

// libhora_xla_text_open finds what a failure's text is made with: 0, or -1.
int libhora_xla_text_open(void);

// libhora_xla_text runs the call that a text describes, of at least so many arrays, and answers their number; status has
// the failure.
int64_t libhora_xla_text(void **results, const void **in, const char *text, size_t length, int64_t least,
                         xla_status *status);

// libhora_xla_tell writes this thread's failure into a status.
void libhora_xla_tell(xla_status *status);

#endif
