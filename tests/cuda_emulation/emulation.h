/* What tests ask of the emulation beyond CUDA's own interface. C and C++. */
#ifndef CUDA_EMULATION_H
#define CUDA_EMULATION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which ready threads of a block, and blocks of a grid, are run. A kernel whose result
 * depends on it has a race. */
typedef enum {
    CUDA_EMULATION_ASCENDING,
    CUDA_EMULATION_DESCENDING,
    CUDA_EMULATION_SHUFFLED /* anew at every launch, from a fixed seed */
} cuda_emulation_order;

void cuda_emulation_set_order(cuda_emulation_order order);
/* Device memory in bytes (default 16 GiB), from the next allocation on. */
void cuda_emulation_set_memory(size_t bytes);

/* Plants a failure of the device: REFUSED, the after-th launch of a kernel from now on is refused
 * (too many resources), later ones work; LOST, the after-th kernel that runs touches memory that
 * isn't there, and from then on every call fails; NONE: no failure, and the device is back. */
typedef enum {
    CUDA_EMULATION_NONE,
    CUDA_EMULATION_REFUSED,
    CUDA_EMULATION_LOST
} cuda_emulation_failure;

void cuda_emulation_plant_failure(cuda_emulation_failure kind, uint64_t after);

typedef struct {
    uint64_t launches;    /* kernels run, those in graphs included */
    uint64_t gemms;       /* matrix products of cuBLAS run */
    uint64_t graphs;      /* graphs launched */
    uint64_t to_device;   /* bytes copied */
    uint64_t to_host;     /* bytes copied */
    size_t memory_in_use; /* device memory allocated now, bytes */
    uint64_t unwiped;     /* allocations given back with something else than zeros in them */
} cuda_emulation_counts;

/* Counts since the start; work that still waits in a stream is not in them. */
void cuda_emulation_get(cuda_emulation_counts *out);
/* How often kernels were run whose name (demangled) contains part. */
uint64_t cuda_emulation_launches_of(const char *part);

#ifdef __cplusplus
}
#endif

#endif
