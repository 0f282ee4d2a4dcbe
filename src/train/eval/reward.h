/* Rewards: rules that look at an answer and give it a score. One set of rules serves to measure a
 * profile and to train one.
 *
 * Rules come as JSON, a list or an object with "rules", each {"type", "weight", "required", "note",
 * ...}. The answer is trimmed first. A rule's value is in [0, 1] (most are 0 or 1). The score is
 * the sum of weight * value, or 0 where the value of a required rule is below 1; a data set's score
 * is the mean over its items.
 *
 *   starts_with, ends_with (value)        the answer begins / ends so
 *   regex (value)                         POSIX extended; ^ and $ are the ends of the answer
 *   word_count (min, max)                 runs of characters that are no white space
 *   every_line_starts_with (value)        every line that is not blank, at least one
 *   lines_starting_with (value, equals, no_other_lines)   so many lines that are not blank
 *   no_upper_case (max_share)             share of the upper-case letters among the letters
 *   stopwords (want, other, min_want)     at least min_want words of want, more than of other
 *   new_words (min, max)                  runs of letters that no user message of the item holds:
 *                                         few where an answer only repeats the question
 *   contains_expect (ignore_case)         one of the item's "expect"
 *   last_number                           the last number is the item's "expect" (GSM8K)
 *   boxed                                 the content of the last \boxed{} is it (MATH)
 *   choice                                the letter chosen is it (multiple choice)
 *   length_near (unit, target)            1 at the target, falling to 0 at its half and its double;
 *                                         the target may be the item's
 *   instructions (level)                  the item's "instructions" (instructions.h)
 *   command (argv, seconds, megabytes)    a program that reads the answer exits with 0
 *   program (argv, seconds, megabytes)    likewise, but it reads the item's "program": {"before",
 *                                         "after"} around the code of the answer */
#ifndef PF_TRAIN_EVAL_REWARD_H
#define PF_TRAIN_EVAL_REWARD_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct reward reward;

/* Reads rules; name is for messages ("check.json"). PF_REFUSED names the rule by its number and
 * type, and the key: unknown type or key, value missing, of a wrong type or out of range, regular
 * expression that is malformed or too large, program that can't be found. */
pf_status reward_read(const json_t *rules, const char *name, reward **out, pf_err *err);
void reward_free(reward *r); /* NULL is fine */

size_t reward_count(const reward *r);
const char *reward_type(const reward *r, size_t rule);
double reward_most(const reward *r);        /* the sum of the weights: the best score */
bool reward_runs_programs(const reward *r); /* there is a command or program rule */

/* Whether item (a JSON object) has what the rules ask of it; PF_REFUSED names the missing part. */
pf_status reward_check_item(const reward *r, const json_t *item, pf_err *err);

typedef struct {
    double score;
    bool all_hold; /* every rule's value is 1 */
} reward_result;

/* Scores an answer. item passed reward_check_item. values (may be NULL) gets each rule's value. Any
 * thread may score; programs of rules run one after another within a call. */
reward_result reward_score(const reward *r, const json_t *item, const char *answer, size_t len,
                           double *values);

#endif
