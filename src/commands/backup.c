#include "profiles/backup.h"
#include "base/file.h"
#include "commands/command.h"
#include "commands/signin.h"

static struct {
    bool replace;
} opt;

static pf_status run(const command_context *ctx, pf_err *err)
{
    store *st = NULL;
    pf_status status = signin_open_store(ctx, &st, err);
    if (status == PF_OK) status = backup_write(st, ctx->argv[0], opt.replace, err);
    if (status == PF_USAGE && !opt.replace && file_exists(ctx->argv[0]))
        status = err_set(err, status, "%s; --replace replaces it", err->text);
    if (status == PF_OK) note(ctx, "%s holds all users' data, still encrypted", ctx->argv[0]);
    store_close(st);
    return status;
}

static const option_spec options[] = {
    OPTION_FLAG_SPEC(0, "replace", &opt.replace, "Replace FILE if it exists."), OPTIONS_END};

const command backup_command = {
    .name = "backup",
    .summary = "Write the whole store to one file",
    .synopsis = TEXTS("[--replace] FILE"),
    .description = TEXTS(
        "Writes all users' data, still encrypted, to FILE (mode 0600), also while the store is in "
        "use. FILE appears only when it is complete. Don't copy the store's own files instead: the "
        "newest changes may still be in a side file.",
        "No passphrase is needed. What is in the backup opens with the passphrases of its time, "
        "whatever is changed or deleted later."),
    .options = options,
    .examples = EXAMPLES({"preft backup ~/preft-$(date +%F).db", "A backup with today's date."}),
    .see_also = TEXTS("preft-restore 1"),
    .min_operands = 1,
    .max_operands = 1,
    .area = AREA_DATA,
    .run = run,
};
