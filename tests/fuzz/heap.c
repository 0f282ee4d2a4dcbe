#include "fuzz/heap.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define HOOKS 1
#elif defined(__SANITIZE_THREAD__)
#define UNCOUNTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOOKS 1
#elif __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define UNCOUNTED 1
#endif
#endif
#if !defined(HOOKS) && !defined(__GLIBC__)
#define UNCOUNTED 1
#endif

/* Signed: what was allocated before the counting may be freed later. */
static atomic_llong now, peak;

#ifndef UNCOUNTED

static void count(long long change)
{
    long long sum = atomic_fetch_add(&now, change) + change;
    long long most = atomic_load(&peak);
    while (sum > most && !atomic_compare_exchange_weak(&peak, &most, sum)) {
    }
}

#endif

int64_t heap_now(void)
{
    return atomic_load(&now);
}

int64_t heap_take_peak(void)
{
    return atomic_exchange(&peak, atomic_load(&now));
}

#ifdef HOOKS

/* as in <sanitizer/allocator_interface.h>, which not every compiler comes with */
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));
size_t __sanitizer_get_allocated_size(const volatile void *p);

static void on_malloc(const volatile void *p, size_t size)
{
    if (p) count((long long)size);
}

static void on_free(const volatile void *p)
{
    if (p) count(-(long long)__sanitizer_get_allocated_size(p));
}

void heap_start(void)
{
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}

#elif defined(UNCOUNTED)

void heap_start(void)
{
}

#else

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *p);

static atomic_bool counting;

void heap_start(void)
{
    atomic_store(&counting, true);
}

static void *given(void *p)
{
    if (p && atomic_load(&counting)) count((long long)malloc_usable_size(p));
    return p;
}

static void taken(void *p)
{
    if (p && atomic_load(&counting)) count(-(long long)malloc_usable_size(p));
}

void *malloc(size_t size)
{
    return given(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return given(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    size_t old = p ? malloc_usable_size(p) : 0;
    void *q = __libc_realloc(p, size);
    if ((q || size == 0) && atomic_load(&counting)) count(-(long long)old);
    return given(q);
}

void *memalign(size_t alignment, size_t size)
{
    return given(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *p = memalign(alignment, size);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

void free(void *p)
{
    taken(p);
    __libc_free(p);
}

#endif
