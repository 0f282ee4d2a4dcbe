/* The CUDA backend is a library of its own, opened when device "cuda" is asked for, so that the
 * program starts quickly and runs on machines without CUDA. This is what the two share. */
#ifndef KN_CUDA_PLUGIN_H
#define KN_CUDA_PLUGIN_H

#include "kernels/backend.h"
#include "kernels/train.h"

#define KN_CUDA_LIBRARY "libpreft-cuda.so"
#define KN_CUDA_SYMBOL  "kn_cuda_plugin_table"

/* The sizes tell a library of another build. */
typedef struct {
    size_t table_bytes, ops_bytes, train_bytes, backend_bytes, counters_bytes;
    kn_backend *(*open)(const kn_options *options, char *message, size_t message_size);
    /* A sentence about the device, or why there is none. */
    bool (*usable)(char *sentence, size_t size);
} kn_cuda_plugin;

#define KN_CUDA_PLUGIN(open_function, usable_function)                                             \
    {                                                                                              \
        sizeof(kn_cuda_plugin), sizeof(kn_backend_ops), sizeof(kn_train_ops), sizeof(kn_backend),  \
            sizeof(kn_counters), open_function, usable_function                                    \
    }

/* In the program (kernels/cuda_library.c): opens the library and then the backend. NULL with a
 * sentence in message. */
kn_backend *kn_cuda_library_open(const kn_options *options, char *message, size_t message_size);

/* `linear` of more rows than this goes through cuBLAS, unless isa is "exact": for quantized and for
 * float weights. */
#define KN_CUDA_MATVEC_ROWS       32
#define KN_CUDA_MATVEC_FLOAT_ROWS 8

#endif
