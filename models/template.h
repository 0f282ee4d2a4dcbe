/* Chat templates: messages to prompt text, ids and the part of each. The known templates are
 * re-implemented in C and recognised by the text of the file's own template; any other text is
 * refused with the list of the known ones, unless the user names one. */
#ifndef PF_MODELS_TEMPLATE_H
#define PF_MODELS_TEMPLATE_H

#include "models/tokenizer.h"

typedef struct chat_template chat_template;

typedef enum { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT } chat_role;
/* "system", "user", "assistant"; false for anything else. */
bool chat_role_parse(const char *name, chat_role *out);
const char *chat_role_name(chat_role role);

typedef struct {
    chat_role role;
    const char *text; /* UTF-8, borrowed */
    size_t len;
    /* Assistant only: the ids that were generated, without the end token. Used in place of
     * tokenizing text, so that a history reads back as it was written. NULL: tokenize text. */
    const int32_t *ids;
    size_t n_ids;
} chat_message;

/* What a rendered token is: the marks policies are made of this. */
typedef enum {
    PART_PROMPT, /* system and user text, all template markers, the assistant header */
    PART_ANSWER, /* an assistant message's content */
    PART_END     /* the end-of-turn token that closes an answer */
} token_part;

typedef struct {
    buf text;             /* what the template engine would render */
    id_list ids;          /* message contents never yield control tokens */
    unsigned char *parts; /* [ids.len] token_part */
    size_t *message_end;  /* [n_messages]: ids before this index belong to messages 0..i */
    size_t n_messages;
} chat_rendering;
void chat_rendering_free(chat_rendering *r);

/* Finds the known template whose text this is (template_text NULL or empty: none) or, with name,
 * the named one. PF_REFUSED lists the known names. *out is owned (chat_template_free). The default
 * system text is taken from the file's own template. */
pf_status chat_template_create(const char *name, const char *template_text, size_t len,
                               const tokenizer *t, chat_template **out, pf_err *err);
void chat_template_free(chat_template *ct);
const char *chat_template_name(const chat_template *ct);

/* Renders messages; generation: with the header for the next answer. Role orders that the template
 * does not define are refused with the message's index. out must be zeroed; freed by the caller
 * also on failure. */
pf_status chat_template_render(const chat_template *ct, const tokenizer *t,
                               const chat_message *messages, size_t n_messages, bool generation,
                               chat_rendering *out, pf_err *err);

#endif
