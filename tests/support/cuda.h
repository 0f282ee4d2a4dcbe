/* Tests of device "cuda", real or emulated (PREFT_CUDA_LIBRARY): operations against the plain
 * backend on the same inputs. */
#ifndef TESTS_SUPPORT_CUDA_H
#define TESTS_SUPPORT_CUDA_H

#include "kernels/backend.h"
#include "support/ops.h"

/* Opens device "cuda"; where there is none the running test is skipped, with the reason printed. */
kn_backend *cuda_open(const char *isa);
/* The emulation runs some hundred thousand threads a second: tests take smaller shapes there. */
bool cuda_is_emulated(void);
/* A function of the emulation (tests/cuda_emulation/emulation.h); NULL on a real device. */
void *cuda_emulation_symbol(const char *name);

/* count floats of device memory; the caller frees. */
float *cuda_fetch(kn_backend *be, const float *src, size_t count);
/* Compares device memory with the plain backend's: |a - b| <= absolute + relative * |b|. */
void cuda_expect_close(kn_backend *be, const float *got, const float *expected, size_t count,
                       double absolute, double relative, const char *what);
/* Fails the test if something failed on the device. */
void cuda_expect_good(kn_backend *be);

#endif
