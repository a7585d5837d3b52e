// What the files that speak to TensorFlow share: its C functions, what a node of a graph says of its call, and an
// operation under way. Private: bridges.h is the public header.
#ifndef HORA_TF_H
#define HORA_TF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bridge.h"

typedef struct tf_status tf_status;
typedef struct tf_tensor tf_tensor;
typedef struct tf_builder tf_builder; // of an operation's definition
typedef struct tf_kernel tf_kernel;
typedef struct tf_making tf_making; // TF_OpKernelConstruction
typedef struct tf_running tf_running; // TF_OpKernelContext
typedef struct tf_shapes tf_shapes; // TF_ShapeInferenceContext
typedef struct tf_shape tf_shape;
typedef struct tf_done tf_done; // a std::function<void()>, which lives until compute returns

#define FUNCTIONS(F)                                                                                                        \
    F(tf_status *, status, "TF_NewStatus", (void))                                                                          \
    F(void, status_close, "TF_DeleteStatus", (tf_status *))                                                                 \
    F(void, status_set, "TF_SetStatus", (tf_status *, int, const char *))                                                   \
    F(int, code, "TF_GetCode", (const tf_status *))                                                                         \
    F(const char *, message, "TF_Message", (const tf_status *))                                                             \
    F(tf_builder *, define, "TF_NewOpDefinitionBuilder", (const char *))                                                    \
    F(void, attr, "TF_OpDefinitionBuilderAddAttr", (tf_builder *, const char *))                                            \
    F(void, in, "TF_OpDefinitionBuilderAddInput", (tf_builder *, const char *))                                             \
    F(void, out, "TF_OpDefinitionBuilderAddOutput", (tf_builder *, const char *))                                           \
    F(void, stateful, "TF_OpDefinitionBuilderSetIsStateful", (tf_builder *, bool))                                          \
    F(void, shapes, "TF_OpDefinitionBuilderSetShapeInferenceFunction", (tf_builder *, void (*)(tf_shapes *, tf_status *)))  \
    F(void, defined, "TF_RegisterOpDefinition", (tf_builder *, tf_status *))                                                \
    F(tf_shape *, shape, "TF_NewShapeHandle", (void))                                                                       \
    F(tf_shape *, scalar, "TF_ShapeInferenceContextScalar", (tf_shapes *))                                                  \
    F(int64_t, shapes_in, "TF_ShapeInferenceContextNumInputs", (tf_shapes *))                                               \
    F(void, shape_in, "TF_ShapeInferenceContextGetInput", (tf_shapes *, int, tf_shape *, tf_status *))                      \
    F(void, shape_out, "TF_ShapeInferenceContextSetOutput", (tf_shapes *, int, tf_shape *, tf_status *))                    \
    F(void, shape_unknown, "TF_ShapeInferenceContextSetUnknownShape", (tf_shapes *, tf_status *))                           \
    F(void, shape_close, "TF_DeleteShapeHandle", (tf_shape *))                                                              \
    F(tf_kernel *, kernel, "TF_NewKernelBuilder",                                                                           \
      (const char *, const char *, void *(*)(tf_making *), void (*)(void *, tf_running *), void (*)(void *)))               \
    F(void, kernel_done, "TF_RegisterKernelBuilder", (const char *, tf_kernel *, tf_status *))                              \
    F(void, get_int, "TF_OpKernelConstruction_GetAttrInt64", (tf_making *, const char *, int64_t *, tf_status *))           \
    F(void, get_bool, "TF_OpKernelConstruction_GetAttrBool", (tf_making *, const char *, unsigned char *, tf_status *))        \
    F(void, get_float, "TF_OpKernelConstruction_GetAttrFloat", (tf_making *, const char *, float *, tf_status *))           \
    F(void, get_size, "TF_OpKernelConstruction_GetAttrSize", (tf_making *, const char *, int32_t *, int32_t *, tf_status *)) \
    F(void, get_text, "TF_OpKernelConstruction_GetAttrString", (tf_making *, const char *, char *, size_t, tf_status *))    \
    F(void, making_failed, "TF_OpKernelConstruction_Failure", (tf_making *, tf_status *))                                   \
    F(int, inputs, "TF_NumInputs", (tf_running *))                                                                          \
    F(void, input, "TF_GetInput", (tf_running *, int, tf_tensor **, tf_status *))                                           \
    F(tf_tensor *, forward, "TF_ForwardInputOrAllocateOutput",                                                              \
      (tf_running *, const int *, int, int, const int64_t *, int, int *, tf_status *))                                      \
    F(tf_tensor *, allocate, "TF_AllocateOutput", (tf_running *, int, int, const int64_t *, int, size_t, tf_status *))      \
    F(void, failed, "TF_OpKernelContext_Failure", (tf_running *, tf_status *))                                              \
    F(int, type, "TF_TensorType", (const tf_tensor *))                                                                      \
    F(int, dims, "TF_NumDims", (const tf_tensor *))                                                                         \
    F(int64_t, dim, "TF_Dim", (const tf_tensor *, int))                                                                     \
    F(int64_t, count, "TF_TensorElementCount", (const tf_tensor *))                                                         \
    F(size_t, bytes, "TF_TensorByteSize", (const tf_tensor *))                                                              \
    F(void *, data, "TF_TensorData", (const tf_tensor *))                                                                   \
    F(void, close, "TF_DeleteTensor", (tf_tensor *))

#define MEMBER(answer, name, symbol, arguments) answer(*name) arguments;
typedef struct {
    FUNCTIONS(MEMBER)
    // Those below may be missing: python/hora/tensorflow/_apart.py has what graphs of TensorFlow 1 get then.
    tf_kernel *(*kernel_later)(const char *, const char *, void *(*)(tf_making *), void (*)(void *, tf_running *, tf_done *), void (*)(void *));
    void (*call)(tf_done *);
} tf_functions;
extern tf_functions libhora_tf;
#define tf libhora_tf

enum { MOST_DIMS = 254, NAME = 192 };

// What a node of a graph says of its call.
typedef struct {
    int64_t kind, op, group, root;
    float pre, post;
    char *label;
    unsigned char named;        // matched by label, in any order: what a rank that has joined takes part in
    unsigned char precondition; // ranks that ask for different things fail one, as in Horovod, instead of giving a wrong argument
} node;

// An operation under way: what begin made of it, until finish.
typedef struct work work;
struct work {
    work *next;
    const node *node;
    tf_running *run;
    tf_status *status;
    int many; // tensors and operations
    hora_op *ops;
    tf_tensor **in, **out;
    char (*names)[NAME];
    int64_t (*dims)[MOST_DIMS];
    int64_t *counts;
    void *stands;      // what is sent for rows without elements
    int32_t size;      // ranks, where begin asked
    uint64_t *tickets; // of what was submitted
    int failed;
    void (*finish)(work *); // takes the result of the only ticket; NULL where operations wrote it themselves
    void *done[4];          // TensorFlow's word that the operation has ended, moved here
    work *after;            // in the list of those that are under way, which others look at
    int64_t since;          // when it was submitted
};

// What runs an operation: begin reads its inputs and says what is to be done (0, or -1 with the kernel's failure told).
typedef int (*tf_begin)(work *);
int libhora_tf_each(work *w);
uint8_t libhora_tf_type(int64_t type); // hora's element type for TensorFlow's; 0: none
int libhora_tf_gather(work *w);
int libhora_tf_exchange(work *w);
int libhora_tf_scatter(work *w);
int libhora_tf_join(work *w);

void libhora_tf_now(const node *n, tf_running *run, tf_begin begin);
void libhora_tf_later(const node *n, tf_running *run, tf_done *done, tf_begin begin);

void libhora_tf_close(work *w);                   // lets go of tensors and memory
void libhora_tf_fail(work *w);                    // tells the kernel this thread's failure
void libhora_tf_wrong(work *w, const char *text); // tells the kernel that its call is wrong
void libhora_tf_answer(work *w, int32_t value);   // gives one number as the result

#endif
