#include "support/cuda.h"

#include "cuda_emulation/emulation.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Threads and blocks run in another order in each backend that is opened: a result that depends on
 * it has a race. */
static void choose_order(void)
{
    static unsigned opened;
    void (*set_order)(cuda_emulation_order);
    *(void **)&set_order = cuda_emulation_symbol("cuda_emulation_set_order");
    if (set_order) set_order((cuda_emulation_order)(opened++ % 3));
}

kn_backend *cuda_open(const char *isa)
{
    char message[256] = "";
    kn_options options = {.device = "cuda", .isa = isa};
    kn_backend *be = kn_backend_open(&options, message, sizeof message);
    choose_order();
    if (be) return be;
    if (getenv("PREFT_CUDA_LIBRARY")) fail_msg("%s", message); /* it was asked for */
    print_message("%s\n", message);
    skip();
    return NULL;
}

void *cuda_emulation_symbol(const char *name)
{
    const char *path = getenv("PREFT_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    return library ? dlsym(library, name) : NULL;
}

bool cuda_is_emulated(void)
{
    return cuda_emulation_symbol("cuda_emulation_get") != NULL;
}

float *cuda_fetch(kn_backend *be, const float *src, size_t count)
{
    float *host = malloc((count + 1) * sizeof *host);
    assert_non_null(host);
    be->ops->download(be, host, src, count * sizeof *host);
    cuda_expect_good(be);
    return host;
}

void cuda_expect_close(kn_backend *be, const float *got, const float *expected, size_t count,
                       double absolute, double relative, const char *what)
{
    float *host = cuda_fetch(be, got, count);
    double *wanted = malloc((count + 1) * sizeof *wanted);
    assert_non_null(wanted);
    for (size_t i = 0; i < count; i++)
        wanted[i] = (double)expected[i];
    ops_expect_close(host, wanted, count, absolute, relative, what);
    free(wanted);
    free(host);
}

void cuda_expect_good(kn_backend *be)
{
    if (!be->ops->good(be)) fail_msg("%s", kn_backend_error(be));
}
