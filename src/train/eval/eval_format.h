/* Data sets to measure with: files of several public formats as items of one kind.
 *
 * An item is a JSON object with "messages" (a conversation; one that ends with an assistant's
 * message holds the wanted answer) or "turns" (user texts, answered one after another), and what
 * the rules ask of it ("expect", "target", "instructions", "program"). */
#ifndef PF_TRAIN_EVAL_FORMAT_H
#define PF_TRAIN_EVAL_FORMAT_H

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* Names, NULL-terminated, in the order of eval_format. */
extern const char *const eval_format_names[];
typedef enum {
    EVAL_CHAT,           /* JSONL of items as above; "prompt" instead of messages is fine */
    EVAL_GSM8K,          /* question, answer ending in "#### N" */
    EVAL_MATH,           /* problem, solution with \boxed{} */
    EVAL_HUMANEVAL,      /* task_id, prompt, entry_point, test */
    EVAL_MBPP,           /* text or prompt, test_list, test_setup_code or test_imports */
    EVAL_IFEVAL,         /* prompt, instruction_id_list, kwargs */
    EVAL_MMLU,           /* question, choices, answer; or CSV: question,A,B,C,D,letter */
    EVAL_LONGBENCH_WRITE /* prompt, length (words) */
} eval_format;

/* Reads a file's content: JSON lines, one JSON list, or CSV where the format has it. *items is an
 * owned list with at least one item; *n_left_out counts what can't be checked here (IFEval: items
 * whose instructions all need a model). PF_REFUSED names the line or entry and the key. */
pf_status eval_format_read(eval_format format, const char *data, size_t len, const char *name,
                           json_t **items, size_t *n_left_out, pf_err *err);

/* The format's own check: {"rules", "max_new_tokens"}; owned. NULL: it has none (chat). */
json_t *eval_format_check(eval_format format);

#endif
