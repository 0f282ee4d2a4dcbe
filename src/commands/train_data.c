#include "commands/train_data.h"

#include "base/json.h"
#include "base/utf8.h"
#include "commands/print.h"

#include <stdio.h>

static json_t *flags_json(const unsigned char *flags, int32_t n)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer(flags[i]));
    return array;
}

static void print_example_json(const train_example *e)
{
    json_t *ids = json_array();
    for (int32_t i = 0; i < e->length; i++)
        json_array_append_new(ids, json_integer(e->ids[i]));
    print_json(json_pack("{s:s, s:o, s:o, s:o, s:b, s:i}", "label", e->label, "ids", ids, "adapted",
                         flags_json(e->adapted, e->length), "target",
                         flags_json(e->target, e->length), "held_out", (int)e->held_out, "repeat",
                         (int)e->repeat));
}

static void print_example(const train_example *e, const tokenizer *t)
{
    printf("%s%s\n", e->label, e->held_out ? " (kept aside)" : "");
    for (int32_t i = 0; i < e->length; i++) {
        buf shown = {0};
        size_t len = 0;
        const char *bytes = tokenizer_bytes(t, e->ids[i], &len);
        utf8_repair(bytes ? bytes : "", bytes ? len : 0, &shown);
        printf("%6d %8d  %-7s %-6s ", i, e->ids[i], e->adapted[i] ? "adapted" : "plain",
               e->target[i] ? "learn" : "");
        for (const char *p = buf_str(&shown); *p; p++) {
            if (*p == '\n')
                fputs("\\n", stdout);
            else
                putchar((unsigned char)*p < 32 ? '?' : *p);
        }
        putchar('\n');
        buf_free(&shown);
    }
}

pf_status train_data_print(const train_dataset *d, const model *m, bool json)
{
    for (size_t i = 0; i < d->n; i++) {
        if (json)
            print_example_json(&d->items[i]);
        else
            print_example(&d->items[i], model_get_tokenizer(m));
    }
    return PF_OK;
}
