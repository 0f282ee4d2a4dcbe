#include "commands/command.h"
#include "profiles/backup.h"

#include <stdlib.h>

static pf_status run(const command_context *ctx, pf_err *err)
{
    char *kept = NULL;
    pf_status status = backup_restore(ctx->global->home, ctx->argv[0], &kept, err);
    if (status == PF_OK) note(ctx, "the store in %s is the backup's now", ctx->global->home);
    if (status == PF_OK && kept)
        note(ctx, "what was there before is %s; delete it when you no longer need it", kept);
    free(kept);
    return status;
}

const command restore_command = {
    .name = "restore",
    .summary = "Put a backup in the place of the store",
    .synopsis = TEXTS("FILE"),
    .description = TEXTS(
        "Copies FILE, checks the copy (format, version, integrity, tables) and only then puts it "
        "in "
        "the place of the store of `--home`, in one step. A damaged backup changes nothing. The "
        "present store is kept beside it as preft.db.before-restore (or, where that is there, with "
        "a "
        "number behind it): delete it when you no longer need it, since it holds what was deleted "
        "later.",
        "All other preft programs on this store must be ended first. A restored store is as old as "
        "the backup: a deliberate restore cannot be told from a rollback by somebody else."),
    .examples = EXAMPLES({"preft restore ~/preft-2026-01-31.db", "Go back to a backup."}),
    .see_also = TEXTS("preft-backup 1", "preft-doctor 1"),
    .min_operands = 1,
    .max_operands = 1,
    .area = AREA_DATA,
    .run = run,
};
