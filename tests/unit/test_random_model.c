/* Models of random weights: every shape's numbers, every type, and what is refused. */
#include "kernels/types.h"
#include "models/model.h"
#include "models/random_model.h"
#include "models/shapes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void opens_in_every_type(void **state)
{
    (void)state;
    for (kn_type t = 0; t < KN_TYPE_COUNT; t++) {
        char path[64];
        model *m = NULL;
        pf_err err = {0};
        snprintf(path, sizeof path, "random:tiny:%s", kn_type_get(t)->name);
        pf_status status = model_open(path, NULL, &m, &err);
        if (kn_type_get(t)->block > 64) {
            assert_int_equal(status, PF_REFUSED);
            assert_non_null(strstr(err.text, "blocks of 256"));
            continue;
        }
        assert_int_equal(status, PF_OK);
        const model_weights *w = model_get_weights(m);
        assert_int_equal(w->layers[1].down.type, t);
        assert_true(w->tied && w->output.data == w->embedding.data);
        float row[160];
        kn_dequantize(t, w->layers[1].down.data, row, 160);
        float largest = 0;
        for (int i = 0; i < 160; i++)
            largest = fmaxf(largest, fabsf(row[i]));
        assert_true(largest > 0.01f && largest < 0.5f);
        model_close(m);
    }
}

static void has_the_numbers_of_its_shape(void **state)
{
    (void)state;
    model *m = NULL;
    pf_err err = {0};
    assert_int_equal(model_open("random:qwen2.5-0.5b", NULL, &m, &err), PF_OK);
    const model_config *c = model_get_config(m);
    assert_int_equal(c->arch, ARCH_QWEN2);
    assert_int_equal(c->n_layers, 24);
    assert_int_equal(c->ff, 4864);
    assert_non_null(model_get_weights(m)->layers[23].q_bias);
    assert_string_equal(model_name(m), "random:qwen2.5-0.5b");
    unsigned char first[32];
    memcpy(first, model_digest(m), sizeof first);
    model_close(m);
    assert_int_equal(model_open("random:qwen2.5-0.5b", NULL, &m, &err), PF_OK);
    assert_memory_equal(model_digest(m), first, sizeof first);
    model_close(m);
}

static void every_shape_is_whole(void **state)
{
    (void)state;
    size_t n;
    const model_shape *s = model_shapes(&n);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(model_shape_find(s[i].name, strlen(s[i].name)), &s[i]);
        assert_int_equal(s[i].n_heads % s[i].n_kv_heads, 0);
        assert_int_equal(s[i].hidden % 32, 0);
        assert_int_equal(s[i].n_heads * s[i].head_dim, s[i].hidden);
    }
}

static void byte_text_comes_back(void **state)
{
    (void)state;
    model *m = NULL;
    pf_err err = {0};
    assert_int_equal(model_open("random:tiny", NULL, &m, &err), PF_OK);
    static const char text[] = "Gr\xc3\xbc\xc3\x9f"
                               "e, \xed\x95\x9c\n";
    id_list ids = {0};
    buf out = {0};
    tokenizer_encode(model_get_tokenizer(m), text, sizeof text - 1, false, false, &ids);
    assert_int_equal(ids.len, sizeof text - 1);
    tokenizer_decode(model_get_tokenizer(m), ids.ids, ids.len, false, &out);
    assert_memory_equal(out.data, text, sizeof text - 1);
    id_list_free(&ids);
    buf_free(&out);
    model_close(m);
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *says;
    } cases[] = {{"random:", "known are: tiny"},
                 {"random:llama", "known are: tiny"},
                 {"random:tiny:q3", "\"q3\" is no type"},
                 {"random:tiny:", "\"\" is no type"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        model *m = NULL;
        pf_err err = {0};
        assert_int_equal(model_open(cases[i].path, NULL, &m, &err), PF_REFUSED);
        assert_non_null(strstr(err.text, cases[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_in_every_type),       cmocka_unit_test(has_the_numbers_of_its_shape),
        cmocka_unit_test(every_shape_is_whole),      cmocka_unit_test(byte_text_comes_back),
        cmocka_unit_test(unknown_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
