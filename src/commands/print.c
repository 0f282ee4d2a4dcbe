#include "commands/print.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

void print_json(json_t *value)
{
    buf text = {0};
    json_append(&text, value);
    json_decref(value);
    puts(buf_str(&text));
    buf_free(&text);
}

const char *print_time(int64_t unix_ms, char out[20])
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;
    if (!localtime_r(&seconds, &parts) || strftime(out, 20, "%Y-%m-%d %H:%M", &parts) == 0)
        out[0] = '\0';
    return out;
}

void print_plain_to(FILE *to, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        uint32_t c = 0;
        size_t n = utf8_decode(text + at, len - at, &c, NULL);
        if ((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0) || c == UINT32_MAX)
            fputc('?', to);
        else
            fwrite(text + at, 1, n, to);
        at += n;
    }
}

void print_plain(const char *text)
{
    print_plain_to(stdout, text, strlen(text));
}
