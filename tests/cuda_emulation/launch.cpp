// Grids of thread blocks. Every thread of a block is a fiber; it runs until it waits (at a barrier
// or for its warp) or ends, so the order in which threads run is ours to choose, and a missing
// barrier shows as a wrong result.
#include "internal.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <map>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define ASAN 1
#endif
#endif
#ifndef ASAN
#define ASAN 0
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_emulation
{

namespace
{

/* --- fibers: stacks to switch between --- */

const size_t STACK_BYTES = (size_t)256 << 10;

struct context {
#if defined(__x86_64__)
    void *sp = nullptr;
#else
    ucontext_t uc;
#endif
    const void *stack = nullptr; // for the address sanitizer
    size_t stack_bytes = 0;
    void *fake_stack = nullptr;
};

#if defined(__x86_64__)
extern "C" void cuda_emulation_switch(void **save, void *load);
asm(".text\n"
    ".type cuda_emulation_switch,@function\n"
    "cuda_emulation_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size cuda_emulation_switch,.-cuda_emulation_switch\n");
#endif

void enter(void);

void prepare(context *c)
{
    char *top = (char *)c->stack + c->stack_bytes;
#if defined(__x86_64__)
    void **sp = (void **)top;
    *--sp = nullptr; // as if called: the stack is 8 off a multiple of 16 at the first instruction
    *--sp = (void *)enter;
    for (int i = 0; i < 6; i++)
        *--sp = nullptr;
    c->sp = sp;
#else
    getcontext(&c->uc);
    c->uc.uc_stack.ss_sp = (void *)c->stack;
    c->uc.uc_stack.ss_size = c->stack_bytes;
    c->uc.uc_link = nullptr;
    makecontext(&c->uc, enter, 0);
    (void)top;
#endif
}

// ending: the fiber that is left will not be resumed.
void switch_context(context *from, context *to, bool ending)
{
#if ASAN
    __sanitizer_start_switch_fiber(ending ? nullptr : &from->fake_stack, to->stack,
                                   to->stack_bytes);
#else
    (void)ending;
#endif
#if defined(__x86_64__)
    cuda_emulation_switch(&from->sp, to->sp);
#else
    swapcontext(&from->uc, &to->uc);
#endif
#if ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

/* --- a running block --- */

enum thread_state { FRESH, READY, AT_BARRIER, IN_WARP, ENDED };

// Lanes of a warp that meet with the same mask. Results stay valid until the same lanes meet again.
struct meeting {
    unsigned int mask = 0, arrived = 0;
    uint64_t generation = 0;
    uint64_t values[32], results[2][32];
    unsigned int present[2];
};

struct warp {
    unsigned int alive = 0;
    std::vector<meeting *> meetings;
};

struct thread {
    thread_state state = FRESH;
    context *fiber = nullptr;
    uint3 index;
    uint64_t waits_for = 0; // generation of a meeting
    meeting *at = nullptr;
};

struct running_block {
    const std::string *name = nullptr;
    const std::function<void()> *body = nullptr;
    std::vector<thread> threads;
    std::vector<warp> warps;
    unsigned int alive = 0, at_barrier = 0;
    int votes = 0, result = 0; // of barriers that count
    size_t current = 0;
    context scheduler;
};
running_block &run = *new running_block;

bool in_kernel = false;
// Never destroyed: kernels may run until the very end.
std::vector<context *> &free_fibers = *new std::vector<context *>;
cuda_emulation_order order = CUDA_EMULATION_ASCENDING;
uint64_t shuffle_state = 0x9e3779b97f4a7c15ull;
std::map<std::string, uint64_t> launches_by_name;

context *take_fiber(void)
{
    context *c;
    if (free_fibers.empty()) {
        c = new context;
        void *p = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            perror("cuda emulation: stack of a thread");
            abort();
        }
        mprotect(p, 4096, PROT_NONE);
        c->stack = (char *)p + 4096;
        c->stack_bytes = STACK_BYTES - 4096;
    } else {
        c = free_fibers.back();
        free_fibers.pop_back();
    }
    prepare(c);
    return c;
}

unsigned int block_threads(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
}

warp &my_warp(void)
{
    return run.warps[run.current / 32];
}

void wait_as(thread_state state)
{
    thread &t = run.threads[run.current];
    t.state = state;
    switch_context(t.fiber, &run.scheduler, false);
}

void release_barrier(void)
{
    run.result = run.votes;
    run.votes = 0;
    run.at_barrier = 0;
    for (thread &t : run.threads)
        if (t.state == AT_BARRIER) t.state = READY;
}

void complete(meeting *m, size_t warp_index)
{
    unsigned int slot = m->generation & 1;
    memcpy(m->results[slot], m->values, sizeof m->values);
    m->present[slot] = m->arrived;
    m->arrived = 0;
    m->generation++;
    for (size_t i = 0; i < 32 && warp_index * 32 + i < run.threads.size(); i++) {
        thread &t = run.threads[warp_index * 32 + i];
        if (t.state == IN_WARP && t.at == m) t.state = READY;
    }
}

// A thread that ends may be the last one that others waited for.
void thread_ended(void)
{
    run.alive--;
    warp &w = my_warp();
    w.alive &= ~(1u << run.current % 32);
    if (run.alive && run.at_barrier == run.alive) release_barrier();
    for (meeting *m : w.meetings)
        if (m->arrived && m->arrived == (m->mask & w.alive)) complete(m, run.current / 32);
}

void enter(void)
{
#if ASAN
    __sanitizer_finish_switch_fiber(nullptr, &run.scheduler.stack, &run.scheduler.stack_bytes);
#endif
    (*run.body)();
    thread &t = run.threads[run.current];
    t.state = ENDED;
    thread_ended();
    context *mine = t.fiber;
    free_fibers.push_back(mine);
    switch_context(mine, &run.scheduler, true);
    abort();
}

const char *state_name(thread_state s)
{
    switch (s) {
    case AT_BARRIER:
        return "waits at __syncthreads";
    case IN_WARP:
        return "waits for its warp";
    default:
        return "runs";
    }
}

uint64_t next_random(void)
{
    shuffle_state ^= shuffle_state << 13;
    shuffle_state ^= shuffle_state >> 7;
    shuffle_state ^= shuffle_state << 17;
    return shuffle_state;
}

std::vector<size_t> order_of(size_t n)
{
    std::vector<size_t> out(n);
    for (size_t i = 0; i < n; i++)
        out[i] = order == CUDA_EMULATION_DESCENDING ? n - 1 - i : i;
    if (order == CUDA_EMULATION_SHUFFLED)
        for (size_t i = n; i > 1; i--)
            std::swap(out[i - 1], out[next_random() % i]);
    return out;
}

void resume(size_t i)
{
    thread &t = run.threads[i];
    if (t.state == FRESH) t.fiber = take_fiber();
    t.state = READY;
    run.current = i;
    threadIdx = t.index;
    switch_context(&run.scheduler, t.fiber, false);
}

void report_deadlock(void)
{
    for (size_t i = 0; i < run.threads.size(); i++)
        for (size_t j = i + 1; j < run.threads.size(); j++) {
            thread &a = run.threads[i], &b = run.threads[j];
            if (a.state != ENDED && b.state != ENDED && (a.state != b.state || a.at != b.at)) {
                run.current = i;
                threadIdx = a.index;
                fault("deadlock: this thread %s, thread (%u,%u,%u) %s", state_name(a.state),
                      b.index.x, b.index.y, b.index.z, state_name(b.state));
            }
        }
    fault("deadlock: all threads that are left wait");
}

void run_block(const std::vector<size_t> &turns)
{
    unsigned int n = block_threads();
    run.threads.assign(n, thread());
    run.alive = n;
    run.at_barrier = 0;
    run.votes = 0;
    for (warp &w : run.warps)
        for (meeting *m : w.meetings)
            delete m;
    run.warps.assign((n + 31) / 32, warp());
    for (unsigned int i = 0; i < n; i++) {
        run.threads[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y,
                                i / blockDim.x / blockDim.y};
        run.warps[i / 32].alive |= 1u << i % 32;
    }
    while (run.alive) {
        bool progress = false;
        for (size_t i : turns)
            if (run.threads[i].state == FRESH || run.threads[i].state == READY) {
                resume(i);
                progress = true;
            }
        if (!progress) report_deadlock();
    }
}

std::string name_of(const void *kernel)
{
    Dl_info info;
    if (dladdr(kernel, &info) && info.dli_sname) {
        int status;
        char *plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
        std::string name = status == 0 ? plain : info.dli_sname;
        free(plain);
        return name.substr(0, name.find('('));
    }
    return "unnamed";
}

} // namespace

void run_grid(dim3 grid, dim3 block, const std::string &name, const std::function<void()> &body)
{
    count_run();
    if (device_state() != cudaSuccess) return;
    counts.launches++;
    launches_by_name[name]++;
    gridDim = grid;
    blockDim = block;
    run.name = &name;
    run.body = &body;
    in_kernel = true;
    std::vector<size_t> turns = order_of(block_threads());
    for (size_t i : order_of((size_t)grid.x * grid.y * grid.z)) {
        blockIdx = {(unsigned int)(i % grid.x), (unsigned int)(i / grid.x % grid.y),
                    (unsigned int)(i / grid.x / grid.y)};
        run_block(turns);
    }
    in_kernel = false;
    check_canaries(("kernel " + name).c_str());
}

cudaError_t launch(dim3 grid, dim3 block, size_t dynamic_shared, cudaStream_t stream,
                   const void *kernel, std::function<void()> body)
{
    guard g(lock());
    size_t threads = (size_t)block.x * block.y * block.z;
    if (!threads || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z ||
        grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535 || dynamic_shared)
        return failed(cudaErrorInvalidConfiguration);
    cudaError_t refused = count_launch();
    if (refused != cudaSuccess) return refused;
    std::string name = name_of(kernel);
    return enqueue(stream, [=]() { run_grid(grid, block, name, body); });
}

void barrier(void)
{
    barrier_count(0);
}

int barrier_count(int predicate)
{
    run.votes += predicate != 0;
    if (++run.at_barrier == run.alive)
        release_barrier(); // the last one goes straight on
    else
        wait_as(AT_BARRIER);
    return run.result;
}

unsigned int lane(void)
{
    return (unsigned int)(run.current % 32);
}

const uint64_t *warp_exchange(unsigned int mask, uint64_t value, unsigned int *present)
{
    warp &w = my_warp();
    unsigned int me = lane();
    if (!(mask >> me & 1))
        fault("lane %u takes part in a warp operation whose mask %08x leaves it out", me, mask);
    meeting *m = nullptr;
    for (meeting *known : w.meetings)
        if (known->mask == mask) m = known;
    if (!m) {
        m = new meeting;
        m->mask = mask;
        w.meetings.push_back(m);
    }
    uint64_t generation = m->generation;
    m->values[me] = value;
    m->arrived |= 1u << me;
    if (m->arrived == (mask & w.alive)) {
        complete(m, run.current / 32);
    } else {
        run.threads[run.current].at = m;
        wait_as(IN_WARP);
    }
    *present = m->present[generation & 1];
    return m->results[generation & 1];
}

std::string where(void)
{
    if (!in_kernel) return "host code";
    char text[160];
    snprintf(text, sizeof text, ", block (%u,%u,%u), thread (%u,%u,%u)", blockIdx.x, blockIdx.y,
             blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    return "kernel " + *run.name + text;
}

void fault(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char text[400];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "cuda emulation: %s: %s\n", where().c_str(), text);
    fflush(stderr);
    abort();
}

void invalid_access(const void *address)
{
    if (in_kernel)
        fault("invalid access to device memory at %p: outside of every allocation", address);
    fault("device memory at %p was touched outside of kernels and copies", address);
}

} // namespace cuda_emulation

using namespace cuda_emulation;

extern "C" void cuda_emulation_set_order(cuda_emulation_order wanted)
{
    guard g(lock());
    order = wanted;
}

extern "C" uint64_t cuda_emulation_launches_of(const char *part)
{
    guard g(lock());
    uint64_t n = 0;
    for (const auto &entry : launches_by_name)
        if (entry.first.find(part) != std::string::npos) n += entry.second;
    return n;
}
