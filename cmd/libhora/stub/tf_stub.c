// What tf.load_op_library opens: TensorFlow takes the operations that are registered meanwhile. libhora.so lies beside it
// and is in the process already.
#include <stdint.h>

int32_t hora_tf_open(void);
int32_t hora_tf_opened = -1; // read from Python: hora_last_error says why it is not 0

__attribute__((constructor)) static void open(void) { hora_tf_opened = hora_tf_open(); }
