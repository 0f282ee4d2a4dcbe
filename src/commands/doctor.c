#include "base/json.h"
#include "commands/command.h"
#include "commands/jsonl.h"
#include "commands/print.h"
#include "commands/signin.h"
#include "kernels/backend.h"
#include "profiles/backup.h"

#include <string.h>

static struct {
    bool repair;
} opt;

/* Where models run with --device auto, and why. Not an examination: nothing is wrong with a machine
 * without a GPU. */
static void describe_device(char *text, size_t size)
{
    char sentence[256];
    if (kn_cuda_usable(sentence, sizeof sentence))
        snprintf(text, size, "cuda (%s)", sentence);
    else
        snprintf(text, size, "cpu (%s); cuda: %s", kn_isa_list(), sentence);
}

static void print_report(const command_context *ctx, const doctor_report *r)
{
    json_t *array = json_array();
    char device[512];
    describe_device(device, sizeof device);
    if (!ctx->global->json) printf("ok   device: %s\n", device);
    for (size_t i = 0; i < r->n; i++) {
        const doctor_item *item = &r->items[i];
        if (ctx->global->json) {
            json_array_append_new(array, json_pack("{s:b, s:s, s:o, s:s}", "ok", item->ok, "what",
                                                   item->what, "detail",
                                                   json_text(item->detail, strlen(item->detail)),
                                                   "advice", item->advice));
            continue;
        }
        printf("%s %s: ", item->ok ? "ok  " : "BAD ", item->what);
        print_plain(item->detail);
        putchar('\n');
        if (!item->ok) printf("     what to do: %s\n", item->advice);
    }
    if (ctx->global->json)
        print_json(
            json_pack("{s:b, s:s, s:O}", "ok", r->n_bad == 0, "device", device, "items", array));
    json_decref(array);
}

static pf_status examine(const command_context *ctx, session *s, pf_err *err)
{
    doctor_report report = {0};
    pf_status status = doctor_examine(ctx->global->home, s, &report, err);
    /* the device is told before there is a store too */
    if (status == PF_OK || (status == PF_NOT_FOUND && !ctx->global->json))
        print_report(ctx, &report);
    if (status == PF_OK && report.n_bad > 0)
        status = err_set(err, PF_DAMAGED, "%zu of %zu examinations found something", report.n_bad,
                         report.n);
    doctor_report_free(&report);
    return status;
}

static pf_status run(const command_context *ctx, pf_err *err)
{
    store *st = NULL;
    session *s = NULL;
    int64_t removed = 0;
    pf_status status = PF_OK;
    if (opt.repair && !ctx->signin->user)
        return usage_error(ctx, err, "--repair needs --user NAME");
    if (ctx->signin->user) status = signin_open(ctx, &st, &s, err);
    if (status == PF_OK && opt.repair) status = doctor_repair(s, &removed, err);
    if (status == PF_OK && opt.repair)
        note(ctx, "%lld rows that could not be opened were removed", (long long)removed);
    if (status == PF_OK) status = examine(ctx, s, err);
    session_unref(s);
    store_close(st);
    return status;
}

static const option_spec options[] = {
    OPTION_FLAG_SPEC(0, "repair", &opt.repair,
                     "Give up the values of `--user` that can't be opened, so that the rest can be "
                     "used and added to again. Make a backup first."),
    OPTIONS_END};

const command doctor_command = {
    .name = "doctor",
    .summary = "Examine the store",
    .synopsis = TEXTS("", "--user U [--repair]"),
    .description = TEXTS(
        "Examines owners and modes of folder and files, the version, the tables, every page and "
        "index, key records and orphaned rows, and says what to do about findings. "
        "It also says which device models run on, and why. With `--user` it opens every encrypted "
        "value of that user, adapters included, and "
        "compares the counts and digests that tell of removed or replaced rows."),
    .options = options,
    .exit_notes = TEXTS("3: something was found"),
    .see_also = TEXTS("preft-backup 1", "preft-restore 1"),
    .groups = GROUP_SIGN_IN,
    .area = AREA_DATA,
    .run = run,
};
