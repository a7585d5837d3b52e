/* hora_data.h: batches of a table's rows, for every language that can call C. The rules of hora.h hold here too.
 *
 * Data are opened, sought and closed by actions of hora_action; docs/abi.md names them. What is read by them lies in
 * memory of the library's: first numbers of 64 bits (rows; of these, rows at the end that repeat others; epoch and
 * position after this batch; batches that the caller holds; of each text where its bytes begin and how many there are),
 * then the arrays, where the answer to data_seek says, each at a multiple of 64 bytes.
 */
#ifndef HORA_DATA_H
#define HORA_DATA_H

#include "hora.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A batch. Its memory stays as it is until hora_data_release, whatever becomes of the data meanwhile. */
typedef struct hora_batch {
    uint32_t size; /* sizeof(hora_batch) */
    uint32_t rows;
    uint64_t batch; /* for hora_data_release */
    void *memory;
    uint64_t bytes;
} hora_batch;

/* -- batches of a table's rows. {"action": "data_open" | "data_blocks" | "data_seek" | "data_state" | "data_remember" | "data_weigh" | "data_skipped" | "data_told" | "data_why" | "data_close", …} to hora_action */
int32_t hora_data_next(uint64_t data, uint32_t timeout_ms, hora_batch *out); /* 0: a batch; 1: not yet (after ≤ 50 ms); 2: the end of the epoch; -1: failed */
int32_t hora_data_release(uint64_t batch);                                   /* its memory is the library's again */

#ifdef __cplusplus
}
#endif
#endif
