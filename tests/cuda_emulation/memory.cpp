// Device memory: every allocation ends at a page that can't be touched, bytes around it are
// watched, fresh memory holds NaNs, freed memory stays out of reach, and host code can't touch any
// of it.
#include "internal.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cuda_emulation
{

namespace
{

const size_t PAGE = 4096, ALIGNMENT = 256;
const size_t ARENA_BYTES = (size_t)1 << 40;
const unsigned char CANARY = 0xc5, FRESH = 0xff;
const size_t FRESH_BYTES = (size_t)256 << 10; // at either end; the inside of more stays untouched

struct block {
    char *pages; // the first page that may be touched
    size_t page_bytes;
    size_t bytes;
};

struct memory {
    char *arena = nullptr;
    size_t used = 0; // address space given out; never given out again
    size_t limit = (size_t)16 << 30;
    int access = 0;
    std::map<char *, block> blocks; // by first byte
    std::set<char *> pinned;
    std::map<char *, size_t> pinned_bytes;
    struct sigaction before[3]; // by place_of
} the;

int place_of(int number)
{
    return number == SIGBUS ? 1 : number == SIGILL ? 2 : 0;
}

void on_invalid_access(int number, siginfo_t *info, void *context)
{
    char *p = (char *)info->si_addr;
    if (p >= the.arena && p < the.arena + ARENA_BYTES) invalid_access(p);
    // Kernels are compiled so that a check of alignment that fails traps.
    if (number == SIGILL && where() != "host code")
        fault("an address that is no multiple of what is read or written there");
    const struct sigaction &before = the.before[place_of(number)];
    if (before.sa_flags & SA_SIGINFO && before.sa_sigaction) {
        before.sa_sigaction(number, info, context);
        return;
    }
    signal(number, SIG_DFL);
    raise(number);
}

// Again when somebody else (a test framework) has put a handler of its own there since.
void install_handler(int number)
{
    struct sigaction now, action = {};
    sigaction(number, nullptr, &now);
    if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_invalid_access) return;
    action.sa_sigaction = on_invalid_access;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(number, &action, &the.before[place_of(number)]);
}

void open_arena(void)
{
    install_handler(SIGSEGV);
    install_handler(SIGBUS);
    install_handler(SIGILL);
    if (the.arena) return;
    void *p =
        mmap(nullptr, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("cuda emulation: address space for device memory");
        abort();
    }
    the.arena = (char *)p;
}

void protect_all(int protection)
{
    for (auto &entry : the.blocks)
        mprotect(entry.second.pages, entry.second.page_bytes, protection);
}

const std::pair<char *const, block> *block_of(const void *p)
{
    auto after = the.blocks.upper_bound((char *)p);
    if (after == the.blocks.begin()) return nullptr;
    --after;
    return (char *)p < after->first + after->second.bytes ? &*after : nullptr;
}

void check_bytes(const char *from, const char *to, const char *side, const char *first,
                 size_t bytes, const char *who)
{
    for (const char *p = from; p < to; p++)
        if (*(const unsigned char *)p != CANARY)
            fault("%s: device memory was written %s of an allocation of %zu bytes (offset %td)",
                  who, side, bytes, p - first);
}

} // namespace

device_access::device_access()
{
    if (the.access++ == 0) protect_all(PROT_READ | PROT_WRITE);
}

device_access::~device_access()
{
    if (--the.access == 0) protect_all(PROT_NONE);
}

bool is_device_pointer(const void *p)
{
    return the.arena && (char *)p >= the.arena && (char *)p < the.arena + ARENA_BYTES;
}

bool is_pinned(const void *p)
{
    auto after = the.pinned_bytes.upper_bound((char *)p);
    if (after == the.pinned_bytes.begin()) return false;
    --after;
    return (char *)p < after->first + after->second;
}

void check_device_range(const void *p, size_t bytes, const char *what)
{
    if (bytes == 0) return;
    if (!is_device_pointer(p)) fault("%s: %p is no device memory", what, p);
    const auto *b = block_of(p);
    if (!b) fault("%s: %p lies in no allocation of device memory", what, p);
    size_t room = (size_t)(b->first + b->second.bytes - (char *)p);
    if (bytes > room)
        fault("%s: %zu bytes from offset %td leave an allocation of %zu bytes", what, bytes,
              (char *)p - b->first, b->second.bytes);
}

void check_canaries(const char *who)
{
    for (auto &entry : the.blocks) {
        const block &b = entry.second;
        const char *first = entry.first, *end = first + b.bytes;
        check_bytes(b.pages, first, "in front", first, b.bytes, who);
        check_bytes(end, b.pages + b.page_bytes, "behind the end", first, b.bytes, who);
    }
}

} // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" void cuda_emulation_set_memory(size_t bytes)
{
    guard g(lock());
    the.limit = bytes;
}

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    guard g(lock());
    open_arena();
    *ptr = nullptr;
    if (forbid_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    if (device_state() != cudaSuccess) return device_state();
    if (bytes == 0) return cudaSuccess;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t pages = (rounded + PAGE - 1) / PAGE * PAGE;
    if (rounded < bytes || counts.memory_in_use + rounded > the.limit ||
        the.used + pages + 2 * PAGE > ARENA_BYTES)
        return failed(cudaErrorMemoryAllocation);
    char *from = the.arena + the.used + PAGE;
    the.used += pages + PAGE;
    if (mprotect(from, pages, PROT_READ | PROT_WRITE) != 0)
        return failed(cudaErrorMemoryAllocation);
    char *first = from + pages - rounded;
    memset(from, CANARY, (size_t)(first - from));
    if (bytes > 2 * FRESH_BYTES) {
        memset(first, FRESH, FRESH_BYTES);
        memset(first + bytes - FRESH_BYTES, FRESH, FRESH_BYTES);
    } else {
        memset(first, FRESH, bytes);
    }
    memset(first + bytes, CANARY, rounded - bytes);
    if (!the.access) mprotect(from, pages, PROT_NONE);
    the.blocks[first] = {from, pages, bytes};
    counts.memory_in_use += rounded;
    *ptr = first;
    return cudaSuccess;
}

void cuda_emulation::give_back(void *ptr)
{
    block b = the.blocks.at((char *)ptr);
    the.blocks.erase((char *)ptr);
    counts.memory_in_use -= (b.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    madvise(b.pages, b.page_bytes, MADV_DONTNEED);
    mprotect(b.pages, b.page_bytes, PROT_NONE);
}

cudaError_t cudaFree(void *ptr)
{
    guard g(lock());
    if (!ptr) return cudaSuccess;
    if (forbid_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    cudaDeviceSynchronize(); // as the real one does
    auto found = the.blocks.find((char *)ptr);
    if (found == the.blocks.end())
        fault("cudaFree: %p is not the start of an allocation (freed twice?)", ptr);
    {
        device_access access;
        check_canaries("cudaFree");
        const char *at = found->first, *end = at + found->second.bytes;
        while (at < end && !*at)
            at++;
        counts.unwiped += at < end;
    }
    give_back(ptr);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned int)
{
    guard g(lock());
    if (forbid_capture() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
    *ptr = malloc(bytes ? bytes : 1);
    if (!*ptr) return failed(cudaErrorMemoryAllocation);
    the.pinned_bytes[(char *)*ptr] = bytes;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
    return cudaHostAlloc(ptr, bytes, 0);
}

cudaError_t cudaFreeHost(void *ptr)
{
    guard g(lock());
    if (!ptr) return cudaSuccess;
    cudaDeviceSynchronize();
    if (the.pinned_bytes.erase((char *)ptr) == 0)
        fault("cudaFreeHost: %p was not allocated by cudaMallocHost (freed twice?)", ptr);
    free(ptr);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    guard g(lock());
    *total = the.limit;
    *free_bytes = the.limit > counts.memory_in_use ? the.limit - counts.memory_in_use : 0;
    return cudaSuccess;
}
