/* Finding and opening the CUDA backend's library. */
#include "kernels/cuda/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside the program in the build folder, beside the tests, and where `make install` puts it. */
static const char *const places[] = {"build/release/" KN_CUDA_LIBRARY, "../" KN_CUDA_LIBRARY,
                                     "../lib/preft/" KN_CUDA_LIBRARY};

static bool program_folder(char *folder, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", folder, size - 1);
    if (n <= 0) return false;
    folder[n] = 0;
    char *slash = strrchr(folder, '/');
    if (!slash) return false;
    slash[1] = 0;
    return true;
}

/* Path of the library, false when there is none. */
static bool find_library(char *path, size_t size)
{
    char folder[4096];
    if (!program_folder(folder, sizeof folder)) return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int n = snprintf(path, size, "%s%s", folder, places[i]);
        if (n > 0 && (size_t)n < size && access(path, R_OK) == 0) return true;
    }
    return false;
}

static const kn_cuda_plugin *load(const char *path, char *sentence, size_t size)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(sentence, size, "the CUDA library can't be loaded: %s", dlerror());
        return NULL;
    }
    const kn_cuda_plugin *p = dlsym(library, KN_CUDA_SYMBOL);
    static const kn_cuda_plugin own = KN_CUDA_PLUGIN(NULL, NULL);
    if (p && memcmp(p, &own, offsetof(kn_cuda_plugin, open)) == 0) return p;
    snprintf(sentence, size, "%s belongs to another build of this program; build it anew", path);
    return NULL;
}

/* The library, loaded once and kept; NULL with a sentence. */
static const kn_cuda_plugin *plugin(char *sentence, size_t size)
{
    static const kn_cuda_plugin *loaded;
    char path[4200];
    const char *chosen = getenv("PREFT_CUDA_LIBRARY");
    if (loaded) return loaded;
    if (chosen && *chosen) return loaded = load(chosen, sentence, size);
    if (!find_library(path, sizeof path)) {
        snprintf(sentence, size, "this program was built without CUDA");
        return NULL;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver) {
        snprintf(sentence, size, "there is no NVIDIA driver here (libcuda.so.1)");
        return NULL;
    }
    return loaded = load(path, sentence, size);
}

bool kn_cuda_usable(char *sentence, size_t size)
{
    const kn_cuda_plugin *p = plugin(sentence, size);
    return p && p->usable(sentence, size);
}

kn_backend *kn_cuda_library_open(const kn_options *options, char *message, size_t message_size)
{
    const kn_cuda_plugin *p = plugin(message, message_size);
    return p ? p->open(options, message, message_size) : NULL;
}
