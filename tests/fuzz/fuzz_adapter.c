/* An adapter's folder: up to the first NUL byte adapter_config.json, after it the weights file,
 * imported for a small model. What must hold: nothing crashes; a refusal says why and leaves no
 * blob; what is accepted reads back as a blob. */
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "profiles/adapter_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE "tests/data/models/tiny-llama/tiny-llama-q4_1.gguf"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *folder, *config_path, *weights_path;
static model *base;

static void clean_up(void)
{
    unlink(config_path);
    unlink(weights_path);
    rmdir(folder);
    free(folder);
    free(config_path);
    free(weights_path);
    model_close(base);
}

static void set_up(void)
{
    pf_err err;
    if (folder) return;
    if (model_open(BASE, NULL, &base, &err) != PF_OK) die("%s", err.text);
    folder = xasprintf("/tmp/preft-fuzz-XXXXXX");
    if (!mkdtemp(folder)) die("no temporary folder");
    config_path = path_join(folder, "adapter_config.json");
    weights_path = path_join(folder, "adapter_model.safetensors");
    atexit(clean_up);
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) die("%s can't be written", path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pf_err err = {0};
    buf blob = {0}, warnings = {0};
    adapter_view view;
    set_up();
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t config_len = nul ? (size_t)(nul - data) : size;
    size_t rest = nul ? size - config_len - 1 : 0;
    write_file(config_path, data, config_len);
    write_file(weights_path, nul ? nul + 1 : data, rest);
    pf_status status = adapter_file_import(folder, base, NULL, &blob, &warnings, &err);
    if (status == PF_OK) {
        PF_ASSERT(adapter_view_open(blob.data, blob.len, model_get_config(base), &view, &err) ==
                  PF_OK);
        adapter_view_close(&view);
    } else {
        PF_ASSERT(err.status == status && err.text[0] && blob.len == 0);
    }
    buf_free(&blob);
    buf_free(&warnings);
    return 0;
}
