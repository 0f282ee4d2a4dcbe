/* A conversation made of another one's messages. */
#include "profiles/history_rows.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

/* The messages of the branch that ends at `last`, from `first` on: path[*from..*end). */
static pf_status find_branch(const conversation *tree, int64_t first, int64_t last, size_t *path,
                             size_t *from, size_t *end, pf_err *err)
{
    *end = conversation_path(tree, last, path);
    *from = 0;
    while (*from < *end && tree->messages[path[*from]].id != first)
        ++*from;
    if (*end == 0) return message_missing(tree->info.id, last, err);
    return *from < *end ? PF_OK : message_missing(tree->info.id, first, err);
}

static pf_status copy_branch(tx *t, const conversation *tree, int64_t first, int64_t last,
                             conversation_row *to, pf_err *err)
{
    size_t *path = xcalloc(tree->n + 1, sizeof *path), from = 0, end = 0;
    int64_t parent = HISTORY_ROOT;
    pf_status status = find_branch(tree, first, last, path, &from, &end, err);
    for (size_t i = from; i < end && status == PF_OK; i++) {
        history_message m = tree->messages[path[i]];
        m.parent = parent;
        m.origin = m.origin ? m.origin : m.id;
        status = message_row_insert(t, to, &m, &parent, err);
    }
    to->current = parent;
    free(path);
    return status;
}

static pf_status save_copy(tx *t, user_head *head, const conversation *tree, int64_t first,
                           int64_t last, int64_t profile, int64_t *id, pf_err *err)
{
    const int64_t origin = tree->info.origin ? tree->info.origin : tree->info.id;
    conversation_row c = {.profile = profile,
                          .created_ms = clock_unix_ms(),
                          .title = xstrdup(tree->info.title),
                          .origin = origin};
    pf_status status = conversation_row_make(t, head, &c, err);
    if (status == PF_OK) status = copy_branch(t, tree, first, last, &c, err);
    if (status == PF_OK) status = conversation_row_write(t, head, &c, NULL, err);
    *id = c.row.id;
    conversation_row_free(&c);
    return status;
}

pf_status conversation_copy(session *s, int64_t id, int64_t first, int64_t last, int64_t profile,
                            int64_t *copy, pf_err *err)
{
    tx t;
    user_head head = {0};
    conversation tree = {0};
    int64_t made = 0;
    pf_status status = tx_begin(s, TX_WRITE, &t, err);
    if (status != PF_OK) return status;
    status = conversation_check_profile(&t, profile, err);
    if (status == PF_OK) status = user_head_read(&t, &head, err);
    if (status == PF_OK) {
        status = conversation_read(&t, id, &tree, err);
        if (status == PF_DAMAGED && tree.info.title) status = PF_OK;
    }
    if (status == PF_OK) status = save_copy(&t, &head, &tree, first, last, profile, &made, err);
    if (status == PF_OK) status = user_head_write(&t, &head, err);
    conversation_free(&tree);
    user_head_free(&head);
    status = tx_end(&t, status, err);
    if (status == PF_OK) *copy = made;
    return status;
}
