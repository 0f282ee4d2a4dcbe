#include "ui/conversation_file.h"

#include "base/file.h"
#include "profiles/secret.h"
#include "ui/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME_CHARS 40 /* of a title, in the name that is offered */

void conversation_offer_file(const char *title, buf *out)
{
    buf_puts(out, "~/");
    size_t start = out->len;
    bool gap = false;
    int chars = 0;
    for (size_t pos = 0, len = strlen(title); pos < len && chars < NAME_CHARS; chars++) {
        text_cluster c = text_next(title + pos, len - pos);
        unsigned char first = (unsigned char)title[pos];
        bool plain = first >= 0x80 || (first >= '0' && first <= '9') ||
                     ((first | 0x20) >= 'a' && (first | 0x20) <= 'z');
        if (plain && gap && out->len > start) buf_putc(out, '-');
        gap = !plain;
        if (plain) buf_append(out, title + pos, c.len);
        pos += c.len;
    }
    buf_puts(out, out->len > start ? ".md" : "conversation.md");
}

pf_status conversation_write(session *s, int64_t id, const char *name, char **path, pf_err *err)
{
    buf text = {0};
    const char *dot = strrchr(name, '.');
    bool lines = dot && strcasecmp(dot, ".jsonl") == 0;
    *path = NULL;
    if (!*name) return err_set(err, PF_USAGE, "A name is needed.");
    pf_status status =
        (lines ? history_export_jsonl : history_export_markdown)(s, &id, 1, &text, err);
    char *full = path_expand_home(name);
    if (status == PF_OK) status = file_write_new(full, text.data, text.len, 0600, err);
    wipe_buf(&text);
    if (status == PF_OK)
        *path = full;
    else
        free(full);
    return status;
}
