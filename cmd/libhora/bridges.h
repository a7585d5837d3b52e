/* bridges.h: entry points that frameworks' compilers call by address, beside hora.h. No program calls them itself.
 *
 * What a compiled program holds outlives epochs, so it names a group by a number that its maker chose; the group's
 * handle is found when the operation runs. Number 0 is the world.
 */
#ifndef HORA_BRIDGES_H
#define HORA_BRIDGES_H

#include <stdint.h>

#include "hora.h"

/* -- for every framework */
int32_t hora_bridge_group(uint64_t number, uint64_t group); /* what number stands for from now on; group 0 takes it away */
hora_str hora_bridge_failure(hora_str within, int32_t *kind, int32_t *rank); /* what was told and stands in that text; else "" */

/* -- XLA, as jaxlib has it: by its typed interface, and by the older one, where a call is a text */
int32_t hora_xla_open(uint32_t minor, uint32_t create); /* the typed interface's minor version and the place of XLA_FFI_Error_Create in its table of functions, as the header that jaxlib brings has them */
void *hora_xla(void *frame); /* the typed interface's handler */
int32_t hora_xla_text_open(void); /* 0, or -1 where failures cannot be told by the older interface; a failed call is known, and the next ones run */
void hora_xla_text(void *out, const void **in, hora_str text, uint64_t length, void *status); /* the older interface's handler */

/* -- TensorFlow. Called from inside tf.load_op_library, by the constructor of a library that has nothing else. */
int32_t hora_tf_open(void); /* operations HoraEach, HoraAllgather, … and their kernels are registered; once */
int32_t hora_tf_xla(void); /* an allreduce for what TensorFlow's XLA compiles, named hora_each; once, where it can be taken */

/* -- torch: larger tensors on the CPU in memory that the host's ranks can map. The first call points the entries of the import
 * table of the loaded library whose file's name begins so to `bytes` of such memory; with library NULL it only tells. about:
 * four numbers, the memory's address, its bytes, its file and the bytes in use. Answers 0 or a number of errno.h. */
int32_t hora_arena(hora_str library, uint64_t bytes, uint64_t *about);

#endif
