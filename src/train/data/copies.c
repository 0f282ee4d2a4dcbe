#include "train/data/copies.h"

#include "base/mem.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

/* A text that was learned. */
typedef struct {
    char *rewritten; /* NULL: as the model wrote it */
    unsigned from;   /* at which choices: bits */
} learned_text;

struct copied_message {
    int64_t origin;
    int64_t rated_ms, rewritten_ms;
    int rating;
    char *rewritten; /* NULL: none is */
    int64_t rewritten_in;
    size_t n; /* copies, the original among them */
    bool looked_at;
    learned_text *learned;
    size_t n_learned;
};

static void item_free(copied_message *m)
{
    for (size_t i = 0; i < m->n_learned; i++)
        wipe_text(m->learned[i].rewritten);
    free(m->learned);
    wipe_text(m->rewritten);
}

void copies_free(copy_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        item_free(&t->items[i]);
    free(t->items);
    free(t->read);
    *t = (copy_table){0};
}

static bool has_text(const char *text)
{
    return text && *text;
}

/* --- loading ---------------------------------------------------------------------------------- */

static int64_t conversation_origin(const conversation_info *info)
{
    return info->origin ? info->origin : info->id;
}

static int64_t message_origin(const history_message *m)
{
    return m->origin ? m->origin : m->id;
}

static int by_origin(const void *a, const void *b)
{
    const int64_t x = ((const copied_message *)a)->origin, y = ((const copied_message *)b)->origin;
    return (x > y) - (x < y);
}

static int by_id(const void *a, const void *b)
{
    const int64_t x = ((const conversation_extent *)a)->id;
    const int64_t y = ((const conversation_extent *)b)->id;
    return (x > y) - (x < y);
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void add_messages(copy_table *t, conversation *c)
{
    t->read = xrealloc_array(t->read, t->n_read + 1, sizeof *t->read);
    t->read[t->n_read++] = conversation_measure(c);
    t->items = xrealloc_array(t->items, t->n + c->n + 1, sizeof *t->items);
    for (size_t i = 0; i < c->n; i++) {
        history_message *m = &c->messages[i];
        t->items[t->n++] = (copied_message){.origin = message_origin(m),
                                            .rated_ms = m->judged_ms,
                                            .rewritten_ms = m->judged_ms,
                                            .rating = m->rating,
                                            .rewritten = m->rewritten,
                                            .rewritten_in = c->info.id,
                                            .n = 1};
        m->rewritten = NULL;
    }
}

/* Of two judgements of one moment (of one from before times were kept) the worse one counts. */
static void merge(copied_message *to, copied_message *from)
{
    if (from->rated_ms > to->rated_ms ||
        (from->rated_ms == to->rated_ms && from->rating < to->rating)) {
        to->rated_ms = from->rated_ms;
        to->rating = from->rating;
    }
    if (has_text(from->rewritten) &&
        (!has_text(to->rewritten) || from->rewritten_ms > to->rewritten_ms)) {
        char *former = to->rewritten;
        to->rewritten = from->rewritten;
        to->rewritten_ms = from->rewritten_ms;
        to->rewritten_in = from->rewritten_in;
        from->rewritten = former;
    }
    to->n += from->n;
    item_free(from);
}

/* One element for each origin, and none for a message that stands alone. */
static void merge_all(copy_table *t)
{
    size_t n = 0;
    if (t->n) qsort(t->items, t->n, sizeof *t->items, by_origin);
    for (size_t i = 0; i < t->n; i++) {
        if (n && t->items[n - 1].origin == t->items[i].origin)
            merge(&t->items[n - 1], &t->items[i]);
        else
            t->items[n++] = t->items[i];
    }
    t->n = n;
    n = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (t->items[i].n > 1)
            t->items[n++] = t->items[i];
        else
            item_free(&t->items[i]);
    }
    t->n = n;
}

/* Conversations of one origin, in order: only those that have company can hold copies. */
static bool has_company(const int64_t *origins, size_t n, int64_t origin)
{
    const int64_t *at = bsearch(&origin, origins, n, sizeof *origins, by_number);
    return at && ((at > origins && at[-1] == origin) || (at + 1 < origins + n && at[1] == origin));
}

pf_status copies_load(session *s, copy_table *out, pf_err *err)
{
    conversation_list list = {0};
    *out = (copy_table){0};
    pf_status status = conversation_list_load(s, -1, 0, 0, &list, err);
    if (status == PF_DAMAGED) status = PF_OK;
    int64_t *origins = xcalloc(list.n + 1, sizeof *origins);
    for (size_t i = 0; i < list.n; i++)
        origins[i] = conversation_origin(&list.items[i]);
    if (list.n) qsort(origins, list.n, sizeof *origins, by_number);
    for (size_t i = 0; i < list.n && status == PF_OK; i++) {
        conversation c = {0};
        if (!has_company(origins, list.n, conversation_origin(&list.items[i]))) continue;
        status = conversation_load_tree(s, list.items[i].id, &c, err);
        if (status == PF_DAMAGED || status == PF_NOT_FOUND) status = PF_OK;
        add_messages(out, &c);
        conversation_free(&c);
    }
    free(origins);
    conversation_list_free(&list);
    if (out->n_read) qsort(out->read, out->n_read, sizeof *out->read, by_id);
    merge_all(out);
    return status;
}

/* --- use -------------------------------------------------------------------------------------- */

static copied_message *find(const copy_table *t, const history_message *m)
{
    const copied_message wanted = {.origin = message_origin(m)};
    return t->n ? bsearch(&wanted, t->items, t->n, sizeof *t->items, by_origin) : NULL;
}

/* Adds a conversation that was read to the list. */
static size_t add_once(const copy_table *t, const conversation_extent **list, size_t n, int64_t id)
{
    const conversation_extent wanted = {.id = id};
    for (size_t i = 0; i < n; i++)
        if (list[i]->id == id) return n;
    list[n] = bsearch(&wanted, t->read, t->n_read, sizeof *t->read, by_id);
    PF_ASSERT(list[n]);
    return n + 1;
}

size_t copies_judge(const copy_table *t, conversation *c, const conversation_extent **lent)
{
    size_t n_lent = 0;
    for (size_t i = 0; i < c->n; i++) {
        history_message *m = &c->messages[i];
        const copied_message *said = find(t, m);
        if (!said) continue;
        m->rating = said->rating;
        if (has_text(m->rewritten) || !has_text(said->rewritten)) continue;
        wipe_text(m->rewritten);
        m->rewritten = xstrdup(said->rewritten);
        if (said->rewritten_in != c->info.id)
            n_lent = add_once(t, lent, n_lent, said->rewritten_in);
    }
    return n_lent;
}

static bool same_text(const char *a, const char *b)
{
    return has_text(a) ? has_text(b) && strcmp(a, b) == 0 : !has_text(b);
}

bool copies_learn(copy_table *t, const history_message *m, learn_from from)
{
    copied_message *known = find(t, m);
    if (!known) return true;
    const unsigned bit = 1u << from;
    size_t i = 0;
    while (i < known->n_learned && !same_text(known->learned[i].rewritten, m->rewritten))
        i++;
    if (i == known->n_learned) {
        known->learned = xrealloc_array(known->learned, i + 1, sizeof *known->learned);
        known->learned[known->n_learned++] =
            (learned_text){.rewritten = has_text(m->rewritten) ? xstrdup(m->rewritten) : NULL};
    }
    const bool first = !(known->learned[i].from & bit);
    known->learned[i].from |= bit;
    return first;
}

bool copies_look(copy_table *t, const history_message *m)
{
    copied_message *known = find(t, m);
    if (!known) return true;
    const bool first = !known->looked_at;
    known->looked_at = true;
    return first;
}
