/* A GGUF file, opened as a model. What must hold: nothing crashes; a file that opens has a whole
 * tokenizer and weights that lie inside the file; a refusal says why. */
#include "base/err.h"
#include "models/model.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input as a file without a name, so that nothing is written to disk. */
static int file_of(const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0) fd = memfd_create("gguf", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        die("no file in memory");
    return fd;
}

/* Reads the first and last byte of a matrix. */
static unsigned touch(const kn_matrix *m)
{
    const unsigned char *bytes = m->data;
    size_t size = (size_t)m->rows * kn_row_bytes(m->type, m->cols);
    return (unsigned)bytes[0] + bytes[size - 1];
}

static void use(const model *m)
{
    static volatile unsigned sink;
    const model_config *c = model_get_config(m);
    const model_weights *w = model_get_weights(m);
    id_list ids = {0};
    sink = touch(&w->embedding) + touch(&w->output);
    for (int32_t i = 0; i < c->n_layers; i++)
        sink = touch(&w->layers[i].q) + touch(&w->layers[i].down);
    tokenizer_encode(model_get_tokenizer(m), "a 1\n\xff", 5, true, true, &ids);
    for (size_t i = 0; i < ids.len; i++)
        PF_ASSERT(ids.ids[i] >= 0 && ids.ids[i] < c->vocab);
    for (int32_t i = 0; i < c->n_stop_ids; i++)
        PF_ASSERT(c->stop_ids[i] >= 0 && c->stop_ids[i] < c->vocab);
    PF_ASSERT(c->n_heads % c->n_kv_heads == 0 && c->head_dim % 2 == 0);
    sink = model_digest(m)[0];
    (void)sink;
    id_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    pf_err err = {0};
    model *m = NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file_of(data, size));
    pf_status status = model_open(path, NULL, &m, &err);
    if (status == PF_OK)
        use(m);
    else
        PF_ASSERT(err.status == status && err.text[0]);
    model_close(m);
    return 0;
}
