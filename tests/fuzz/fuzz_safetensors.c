/* The same bytes as a safetensors file and as an adapter's blob. What must hold: nothing crashes;
 * every tensor lies in the file and the data is covered once; a blob that is accepted, written
 * again and read again is the same adapter. */
#include "base/err.h"
#include "models/adapter_blob.h"
#include "models/safetensors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const model_config config = {.arch = ARCH_LLAMA,
                                    .n_layers = 3,
                                    .hidden = 4,
                                    .n_heads = 2,
                                    .n_kv_heads = 1,
                                    .head_dim = 2,
                                    .ff = 6,
                                    .vocab = 10};

static void read_tensors(const uint8_t *data, size_t size)
{
    safetensors st;
    pf_err err = {0};
    pf_status status = safetensors_parse(data, size, "input", &st, &err);
    if (status == PF_OK) {
        size_t total = 0;
        for (size_t i = 0; i < st.n; i++) {
            const safetensors_tensor *t = &st.tensors[i];
            PF_ASSERT(t->data >= data && t->bytes <= size && t->data + t->bytes <= data + size);
            PF_ASSERT(safetensors_find(&st, t->name) == t);
            total += t->bytes;
        }
        uint64_t header;
        memcpy(&header, data, 8);
        PF_ASSERT(8 + header + total == size);
    } else {
        PF_ASSERT(err.status == status && err.text[0]);
    }
    safetensors_free(&st);
}

static void read_blob(const uint8_t *data, size_t size)
{
    adapter_view first, second;
    pf_err err = {0};
    buf again = {0};
    if (adapter_view_open(data, size, &config, &first, &err) != PF_OK) return;
    PF_ASSERT(adapter_blob_write(&first, &config, NULL, NULL, &again, &err) == PF_OK);
    PF_ASSERT(adapter_view_open(again.data, again.len, &config, &second, &err) == PF_OK);
    PF_ASSERT(first.n_items == second.n_items && first.direft == second.direft);
    for (size_t i = 0; i < first.n_items; i++)
        PF_ASSERT(first.items[i].layer == second.items[i].layer &&
                  first.items[i].rank == second.items[i].rank &&
                  first.items[i].scale == second.items[i].scale);
    adapter_view_close(&first);
    adapter_view_close(&second);
    buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_tensors(data, size);
    read_blob(data, size);
    return 0;
}
