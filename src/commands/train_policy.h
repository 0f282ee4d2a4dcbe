/* `preft train --grpo`: the questions, the rules that reward answers, and the account on screen. */
#ifndef PF_COMMANDS_TRAIN_POLICY_H
#define PF_COMMANDS_TRAIN_POLICY_H

#include "base/options.h"
#include "commands/command.h"
#include "train/policy.h"

#include <jansson.h>

/* Trains with the questions of files (JSONL with messages; other members of a line, such as
 * "expect", are for the rules) and the rules in the file reward. *blob receives the adapter and
 * *record (owned) the account of the run; both also when it was stopped by a signal. */
pf_status train_policy_run(const command_context *ctx, engine *e, const option_list *files,
                           const char *reward_path, const policy_options *options, const buf *start,
                           buf *blob, json_t **record, pf_err *err);

#endif
