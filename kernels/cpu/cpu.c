/* The CPU backend: opening, memory, the table of operations. */
#include "kernels/cpu/cpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_THREADS 1024

/* Adapters are packed by several threads at once: each has its own last failure. */
static _Thread_local char last_error[160];

void kn_cpu_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
}

static const char *cpu_error(const kn_backend *be)
{
    (void)be;
    return last_error;
}

/* The empty statement reads the memory, for all the compiler knows, so that the wiping isn't
 * dropped. */
void kn_wipe(void *p, size_t bytes)
{
    if (bytes) memset(p, 0, bytes);
    __asm__ volatile("" : : "r"(p) : "memory");
}

void kn_discard(void *p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uint8_t *first = p, *end = first + bytes;
    uint8_t *whole = (uint8_t *)(((uintptr_t)first + page - 1) & ~(page - 1));
    uint8_t *whole_end = (uint8_t *)((uintptr_t)end & ~(page - 1));
    if (whole >= whole_end || madvise(whole, (size_t)(whole_end - whole), MADV_DONTNEED) != 0) {
        kn_wipe(p, bytes);
        return;
    }
    kn_wipe(first, (size_t)(whole - first));
    kn_wipe(whole_end, (size_t)(end - whole_end));
}

static void scratch_free(kn_scratch *s)
{
    kn_wipe(s->data, s->bytes);
    free(s->data);
    *s = (kn_scratch){0};
}

void *kn_scratch_get(kn_scratch *s, size_t bytes)
{
    if (bytes <= s->bytes) return s->data;
    scratch_free(s);
    s->bytes = (bytes + bytes / 4 + 63) / 64 * 64;
    s->data = aligned_alloc(64, s->bytes);
    if (!s->data) {
        fprintf(stderr, "preft: out of memory (%zu bytes of working space)\n", s->bytes);
        abort();
    }
    return s->data;
}

void kn_cpu_run(kn_cpu *cpu, int n_items, double work, kn_pool_fn *fn, void *ctx)
{
    enum { WORTH_SHARING_NS = 4000 };
    if (work < WORTH_SHARING_NS)
        for (int i = 0; i < n_items; i++)
            fn(ctx, i, 0);
    else
        kn_pool_run(cpu->pool, n_items, fn, ctx);
}

static void cpu_close(kn_backend *be)
{
    kn_cpu *cpu = kn_cpu_of(be);
    kn_pool_free(cpu->pool);
    for (int i = 0; cpu->worker && i < cpu->base.threads; i++)
        scratch_free(&cpu->worker[i]);
    free(cpu->worker);
    kn_chunk_drop(cpu->chunk);
    scratch_free(&cpu->activations);
    scratch_free(&cpu->segments);
    scratch_free(&cpu->rope);
    scratch_free(&cpu->rope_key);
    scratch_free(&cpu->runs);
    scratch_free(&cpu->partials);
    scratch_free(&cpu->training);
    free(cpu);
}

/* What lies before a buffer. */
typedef struct {
    void *block; /* from calloc */
    size_t bytes;
} buffer_head;

/* Zeroed by the system where it is large, and then not there at all before it is used: buffers are
 * made for the largest step. */
static void *cpu_buffer_alloc(kn_backend *be, size_t bytes)
{
    (void)be;
    uint8_t *block = bytes <= SIZE_MAX - 128 ? calloc(1, bytes + 128) : NULL;
    if (!block) {
        kn_cpu_fail("out of memory: a buffer of %zu bytes", bytes);
        return NULL;
    }
    uint8_t *p = block + 64 + (64 - (uintptr_t)block % 64) % 64;
    const buffer_head head = {block, bytes};
    memcpy(p - sizeof head, &head, sizeof head);
    return p;
}

/* Activations and weights in training are derived from private text. */
static void cpu_buffer_free(kn_backend *be, void *ptr)
{
    (void)be;
    if (!ptr) return;
    buffer_head head;
    memcpy(&head, (uint8_t *)ptr - sizeof head, sizeof head);
    kn_discard(ptr, head.bytes);
    free(head.block);
}

/* The tables of positions' angles stay: they say nothing. */
static void cpu_forget(kn_backend *be)
{
    kn_cpu *cpu = kn_cpu_of(be);
    kn_scratch *const used[] = {&cpu->activations, &cpu->segments, &cpu->runs, &cpu->partials,
                                &cpu->training};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        kn_wipe(used[i]->data, used[i]->bytes);
    for (int i = 0; i < be->threads; i++)
        kn_wipe(cpu->worker[i].data, cpu->worker[i].bytes);
}

static void cpu_copy(kn_backend *be, void *dst, const void *src, size_t bytes)
{
    (void)be;
    if (bytes) memcpy(dst, src, bytes);
}

static void cpu_counters(const kn_backend *be, kn_counters *out)
{
    *out = ((const kn_cpu *)be)->counters;
}

static const kn_backend_ops cpu_ops = {
    .close = cpu_close,
    .buffer_alloc = cpu_buffer_alloc,
    .buffer_free = cpu_buffer_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .weight_create = kn_cpu_weight_create,
    .weight_free = kn_cpu_weight_free,
    .weight_bytes = kn_cpu_weight_bytes,
    .weight_rows = kn_cpu_weight_rows,
    .adapter_create = kn_cpu_adapter_create,
    .adapters_create = kn_cpu_adapters_create,
    .adapter_free = kn_cpu_adapter_free,
    .adapter_bytes = kn_cpu_adapter_bytes,
    .embed = kn_cpu_embed,
    .rmsnorm = kn_cpu_rmsnorm,
    .linear = kn_cpu_linear,
    .linear_fused = kn_cpu_linear_fused,
    .rope = kn_cpu_rope,
    .swiglu = kn_cpu_swiglu,
    .add = kn_cpu_add,
    .gather = kn_cpu_gather,
    .kv_create = kn_cpu_kv_create,
    .kv_free = kn_cpu_kv_free,
    .kv_page_bytes = kn_cpu_kv_page_bytes,
    .kv_write = kn_cpu_kv_write,
    .kv_copy = kn_cpu_kv_copy,
    .kv_clear = kn_cpu_kv_clear,
    .kv_discard = kn_cpu_kv_discard,
    .attention = kn_cpu_attention,
    .lora = kn_cpu_lora,
    .lora_maps = kn_cpu_lora_maps,
    .direft = kn_cpu_direft,
    .counters = cpu_counters,
    .error = cpu_error,
    .forget = cpu_forget,
};

kn_backend *kn_cpu_open(const kn_options *options, char *message, size_t message_size)
{
    const kn_cpu_kernels *kernels = kn_cpu_kernels_find(options->isa);
    if (!kernels) {
        snprintf(message, message_size,
                 "instruction set '%s' can't be used here; this machine has: %s", options->isa,
                 kn_isa_list());
        return NULL;
    }
    int threads = options->threads > 0 ? options->threads : kn_usable_cores();
    if (threads > MAX_THREADS) {
        snprintf(message, message_size, "%d threads: at most %d are possible", threads,
                 MAX_THREADS);
        return NULL;
    }
    kn_cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu) {
        snprintf(message, message_size, "out of memory");
        return NULL;
    }
    cpu->base.ops = &cpu_ops;
    cpu->base.device = "cpu";
    cpu->base.isa = kernels->isa;
    cpu->base.threads = threads;
    cpu->base.adapters_anywhere = true;
    cpu->kernels = kernels;
    cpu->worker = calloc((size_t)threads, sizeof *cpu->worker);
    cpu->pool = kn_pool_create(threads);
    if (!cpu->worker || !cpu->pool) {
        snprintf(message, message_size, "can't start %d threads", threads);
        cpu_close(&cpu->base);
        return NULL;
    }
    return &cpu->base;
}
