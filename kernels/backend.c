/* Choosing a device and an instruction set. */
#include "backend.h"

#include "kernels/cpu/amx.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/plugin.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
/* The builtin asks CPUID, and XGETBV whether the system saves the registers; older compilers don't
 * know F16C by name. */
static bool has_avx2(void)
{
    unsigned eax, ebx, ecx, edx;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

#if defined(__x86_64__) && !defined(KN_EMULATE_AVX512)
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Linux saves the tiles' 8 KiB only for programs that have asked for it; the threads of this one
 * may use them from then on. */
static bool has_amx(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };
    const unsigned tile_and_int8 = 3u << 24, saved = 3u << 17;
    unsigned eax, ebx, ecx, edx;
    if (!has_avx512() || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
    if ((edx & tile_and_int8) != tile_and_int8) return false;
    __asm__ volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    return (eax & saved) == saved && syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
    return false;
#endif
}
#endif

/* Worst first. */
static const struct {
    const kn_cpu_kernels *kernels;
    bool (*usable)(void);
} isa_table[] = {
    {&kn_ref_kernels, always},
#if defined(__x86_64__) && defined(KN_EMULATE_AVX512)
    {&kn_avx512_kernels, has_avx2}, /* these two are slow: for tests, never the best */
    {&kn_amx_kernels, has_avx2},
    {&kn_avx2_kernels, has_avx2},
#elif defined(__x86_64__)
    {&kn_avx2_kernels, has_avx2},
    {&kn_avx512_kernels, has_avx512},
    {&kn_amx_kernels, has_amx},
#endif
};
#define N_ISAS (sizeof isa_table / sizeof isa_table[0])

const kn_cpu_kernels *kn_cpu_kernels_find(const char *name)
{
    for (size_t i = N_ISAS; i-- > 0;)
        if ((!name || strcmp(name, isa_table[i].kernels->isa) == 0) && isa_table[i].usable())
            return isa_table[i].kernels;
    return NULL;
}

const char *kn_isa_list(void)
{
    static _Thread_local char list[64];
    list[0] = 0;
    for (size_t i = 0; i < N_ISAS; i++)
        if (isa_table[i].usable())
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? " " : "",
                     isa_table[i].kernels->isa);
    return list;
}

/* An instruction set names the CPU's kernels. */
static bool is_cpus(const char *isa)
{
    return isa && strcmp(isa, "exact") != 0 && strcmp(isa, "precise") != 0;
}

kn_backend *kn_backend_open(const kn_options *options, char *message, size_t message_size)
{
    const char *device = options->device ? options->device : "cpu";
    message[0] = 0;
    if (strcmp(device, "cpu") == 0) return kn_cpu_open(options, message, message_size);
    if (strcmp(device, "cuda") == 0) {
        char why[256];
        kn_backend *be = kn_cuda_library_open(options, why, sizeof why);
        if (!be) snprintf(message, message_size, "device 'cuda' is not available: %s", why);
        return be;
    }
    if (strcmp(device, "auto") == 0) {
        kn_backend *be =
            is_cpus(options->isa) ? NULL : kn_cuda_library_open(options, message, message_size);
        return be ? be : kn_cpu_open(options, message, message_size);
    }
    snprintf(message, message_size, "device '%s' is unknown; there are: cpu, cuda, auto", device);
    return NULL;
}

const char *kn_backend_error(const kn_backend *be)
{
    return be->ops->error ? be->ops->error(be) : be->message;
}

bool kn_adapters_create(kn_backend *be, const kn_adapter_matrices *m, int n,
                        kn_adapter_weight **out)
{
    if (be->ops->adapters_create) return be->ops->adapters_create(be, m, n, out);
    for (int i = 0; i < n; i++) {
        out[i] = be->ops->adapter_create(be, &m[i]);
        if (out[i]) continue;
        while (i-- > 0)
            be->ops->adapter_free(be, out[i]);
        return false;
    }
    return true;
}
