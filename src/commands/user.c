#include "base/json.h"
#include "base/mem.h"
#include "commands/command.h"
#include "commands/print.h"
#include "commands/signin.h"
#include "profiles/backup.h"

#include <stdlib.h>
#include <string.h>

static struct {
    bool recovery, forgotten, drop;
    int kdf;
    const char *confirm;
} opt = {.kdf = 1};

static const char *const levels[] = {"interactive", "moderate", "sensitive", NULL};

/* The recovery key, where it was made: the only time it is shown. */
static void print_recovery(const command_context *ctx, const secret *key)
{
    note(ctx, "this recovery key opens your data if you forget the passphrase. Write it down and "
              "keep it safe; it is not shown again:");
    printf("%s\n", key->data);
}

/* --- add -------------------------------------------------------------------------------------- */

static pf_status run_add(const command_context *ctx, pf_err *err)
{
    store_options options = {0};
    store *st = NULL;
    session *s = NULL;
    secret *passphrase = NULL, *recovery = NULL;
    PF_ASSERT(vault_cost_parse(levels[opt.kdf], &options.cost));
    /* check the name before a store is made and a passphrase is asked for */
    pf_status status = user_check_name(NULL, ctx->argv[0], err);
    if (status == PF_OK) status = store_open(ctx->global->home, &options, &st, err);
    if (status == PF_OK) status = user_check_name(st, ctx->argv[0], err);
    if (status == PF_OK) status = signin_read_new(ctx, "New passphrase: ", &passphrase, err);
    if (status == PF_OK)
        status =
            user_create(st, ctx->argv[0], passphrase, &s, opt.recovery ? &recovery : NULL, err);
    if (status != PF_OK) goto out;
    if (ctx->global->json)
        print_json(json_pack("{s:I, s:s, s:s?}", "id", (json_int_t)session_user_id(s), "name",
                             session_user_name(s), "recovery_key",
                             recovery ? recovery->data : NULL));
    else
        note(ctx, "%s can sign in now", session_user_name(s));
    if (recovery && !ctx->global->json) print_recovery(ctx, recovery);
    if (!recovery)
        note(ctx, "without the passphrase nobody can read this user's data, and nothing brings it "
                  "back (`preft user recovery` makes a recovery key)");
out:
    secret_free(recovery);
    secret_free(passphrase);
    session_unref(s);
    store_close(st);
    return status;
}

static const option_spec add_options[] = {
    OPTION_FLAG_SPEC('r', "recovery", &opt.recovery,
                     "Make a recovery key and print it: the only other way to the data."),
    OPTION_CHOICE_SPEC(0, "kdf", &opt.kdf, "LEVEL", levels,
                       "The cost of trying a passphrase: 64 MiB, 256 MiB or 1 GiB of memory and "
                       "a fraction of a second to some seconds at each sign-in. Default: "
                       "`moderate`."),
    OPTIONS_END};

static const command add_command = {
    .name = "user add",
    .summary = "Create a user",
    .synopsis = TEXTS("[--recovery] NAME"),
    .description = TEXTS(
        "Creates the user NAME and asks for a passphrase, twice. The first user also creates the "
        "store. Everything the user saves is encrypted under a key that only the passphrase, or "
        "the recovery key, opens.",
        "A name has letters, digits, blanks and - _ . ' only, at most 64 characters; invisible "
        "characters and letters of different scripts in one name are refused, and so are names "
        "that look like another user's (in upper or lower case, or with look-alike letters).",
        "Passphrases are up to 1024 bytes of UTF-8. The same letters typed composed or decomposed "
        "are the same passphrase (NFC); case and blanks count."),
    .options = add_options,
    .examples = EXAMPLES({"preft user add mira", "Create the user mira."},
                         {"preft user add --recovery mira", "With a recovery key, shown once."}),
    .see_also = TEXTS("preft-user-recovery 1", "preft-security 7"),
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_PASSPHRASE,
    .area = AREA_PEOPLE,
    .run = run_add,
};

/* --- list ------------------------------------------------------------------------------------- */

static pf_status run_list(const command_context *ctx, pf_err *err)
{
    store *st = NULL;
    user_list list = {0};
    json_t *array = json_array();
    pf_status status = signin_open_store(ctx, &st, err);
    if (status == PF_OK) status = user_list_load(st, &list, err);
    for (size_t i = 0; i < list.n; i++) {
        const user_info *u = &list.items[i];
        if (ctx->global->json)
            json_array_append_new(array,
                                  json_pack("{s:I, s:s, s:I, s:b}", "id", (json_int_t)u->id, "name",
                                            u->name, "created_ms", (json_int_t)u->created_ms,
                                            "recovery", u->has_recovery));
        else
            printf("%s\n", u->name);
    }
    if (status == PF_OK && ctx->global->json)
        print_json(array);
    else
        json_decref(array);
    user_list_free(&list);
    store_close(st);
    return status;
}

static const command list_command = {
    .name = "user list",
    .summary = "List the users",
    .synopsis = TEXTS(""),
    .description = TEXTS("Prints the names of all users, which need no passphrase to be seen."),
    .area = AREA_PEOPLE,
    .run = run_list,
};

/* --- passwd ----------------------------------------------------------------------------------- */

static pf_status change_known(const command_context *ctx, store *st, const char *name, pf_err *err)
{
    session *s = NULL;
    secret *old = NULL, *new = NULL;
    pf_status status = signin_read_secret(ctx, "Present passphrase: ", &old, err);
    if (status == PF_OK) status = user_sign_in(st, name, old, &s, err);
    if (status == PF_OK) status = signin_read_new(ctx, "New passphrase: ", &new, err);
    if (status == PF_OK) status = user_change_passphrase(s, old, new, err);
    secret_free(old);
    secret_free(new);
    session_unref(s);
    return status;
}

static pf_status change_forgotten(const command_context *ctx, store *st, const char *name,
                                  pf_err *err)
{
    session *s = NULL;
    secret *key = NULL, *new = NULL;
    pf_status status = signin_read_secret(ctx, "Recovery key: ", &key, err);
    if (status == PF_OK) status = signin_read_new(ctx, "New passphrase: ", &new, err);
    if (status == PF_OK) status = user_recover(st, name, key, new, &s, err);
    secret_free(key);
    secret_free(new);
    session_unref(s);
    return status;
}

static pf_status run_passwd(const command_context *ctx, pf_err *err)
{
    store *st = NULL;
    const char *name = ctx->argv[0];
    pf_status status = signin_open_store(ctx, &st, err);
    if (status == PF_OK)
        status =
            opt.forgotten ? change_forgotten(ctx, st, name, err) : change_known(ctx, st, name, err);
    if (status == PF_OK)
        note(ctx, "%s has a new passphrase. Backups made before open with the old one.", name);
    store_close(st);
    return status;
}

static const option_spec passwd_options[] = {
    OPTION_FLAG_SPEC('f', "forgotten", &opt.forgotten,
                     "Ask for the recovery key in place of the present passphrase."),
    OPTIONS_END};

static const command passwd_command = {
    .name = "user passwd",
    .summary = "Change a user's passphrase",
    .synopsis = TEXTS("[--forgotten] NAME"),
    .description = TEXTS(
        "Asks for the present passphrase (or the recovery key) and for a new one. Only the "
        "wrapping "
        "of the user's key is renewed, so this is quick whatever the user has saved; the old "
        "wrapping is overwritten. Where the user is signed in elsewhere, that session continues "
        "and reports the change.",
        "With `--passphrase-fd` or `--passphrase-file` the present passphrase is the first line "
        "and the new one the second."),
    .options = passwd_options,
    .examples = EXAMPLES({"preft user passwd mira", "Change mira's passphrase."},
                         {"preft user passwd --forgotten mira", "Set one with the recovery key."}),
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_PASSPHRASE,
    .area = AREA_PEOPLE,
    .run = run_passwd,
};

/* --- recovery --------------------------------------------------------------------------------- */

static pf_status run_recovery(const command_context *ctx, pf_err *err)
{
    store *st = NULL;
    session *s = NULL;
    secret *passphrase = NULL, *key = NULL;
    const char *name = ctx->argv[0];
    pf_status status = signin_open_store(ctx, &st, err);
    if (status == PF_OK) status = signin_read_secret(ctx, "Passphrase: ", &passphrase, err);
    if (status == PF_OK) status = user_sign_in(st, name, passphrase, &s, err);
    if (status == PF_OK)
        status = opt.drop ? user_drop_recovery_key(s, err)
                          : user_make_recovery_key(s, passphrase, &key, err);
    if (status == PF_OK && key && ctx->global->json)
        print_json(
            json_pack("{s:s, s:s}", "name", session_user_name(s), "recovery_key", key->data));
    else if (status == PF_OK && key)
        print_recovery(ctx, key);
    else if (status == PF_OK)
        note(ctx, "%s has no recovery key any more", session_user_name(s));
    secret_free(key);
    secret_free(passphrase);
    session_unref(s);
    store_close(st);
    return status;
}

static const option_spec recovery_options[] = {
    OPTION_FLAG_SPEC('d', "drop", &opt.drop,
                     "Invalidate the present recovery key, without a new one."),
    OPTIONS_END};

static const command recovery_command = {
    .name = "user recovery",
    .summary = "Make a new recovery key",
    .synopsis = TEXTS("[--drop] NAME"),
    .description =
        TEXTS("Prints a new recovery key, once, and invalidates an older one. It is nine "
              "groups of four letters and digits, the last of which is a checksum; in "
              "typing it, case, blanks and dashes don't matter."),
    .options = recovery_options,
    .examples = EXAMPLES({"preft user recovery mira", "A new recovery key for mira."}),
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_PASSPHRASE,
    .area = AREA_PEOPLE,
    .run = run_recovery,
};

/* --- remove ----------------------------------------------------------------------------------- */

static pf_status confirm_name(const command_context *ctx, const char *name, pf_err *err)
{
    char *answer = opt.confirm ? xstrdup(opt.confirm) : NULL;
    pf_status status = PF_OK;
    if (!answer) {
        char *question = xasprintf("Everything of %s will be deleted for good. To go on, type the "
                                   "user's name: ",
                                   name);
        status = signin_ask(ctx, question, &answer, err);
        free(question);
        if (status == PF_USAGE)
            status = usage_error(ctx, err,
                                 "there is no terminal to ask on: repeat the name with "
                                 "--confirm NAME");
    }
    if (status == PF_OK && strcmp(answer, name) != 0)
        status = usage_error(ctx, err, "the name typed is not %s; nothing was changed", name);
    free(answer);
    return status;
}

static pf_status run_remove(const command_context *ctx, pf_err *err)
{
    store *st = NULL;
    user_list list = {0};
    const char *name = ctx->argv[0];
    bool found = false;
    pf_status status = signin_open_store(ctx, &st, err);
    if (status == PF_OK) status = user_list_load(st, &list, err);
    for (size_t i = 0; i < list.n; i++)
        found = found || strcmp(list.items[i].name, name) == 0;
    if (status == PF_OK && !found)
        status =
            err_set(err, PF_NOT_FOUND,
                    "there is no user %s (the name must be exact); `preft user list` shows who "
                    "is",
                    name);
    if (status == PF_OK) status = confirm_name(ctx, name, err);
    if (status == PF_OK) status = user_remove(st, name, err);
    if (status == PF_OK) note(ctx, "%s and everything of %s is deleted", name, name);
    char *copies = status == PF_OK ? backup_copies(store_home(st)) : NULL;
    if (copies)
        note(ctx, "%s has older copies of the store, which may still hold it: %s", store_home(st),
             copies);
    free(copies);
    user_list_free(&list);
    store_close(st);
    return status;
}

static const option_spec remove_options[] = {
    OPTION_STRING_SPEC(0, "confirm", &opt.confirm, "NAME",
                       "The name once more, where there is no terminal to ask on."),
    OPTIONS_END};

static const command remove_command = {
    .name = "user remove",
    .summary = "Delete a user with everything",
    .synopsis = TEXTS("[--confirm NAME] NAME"),
    .description = TEXTS(
        "Deletes the user's key, profiles, conversations and settings, after the name was typed "
        "again. No passphrase is needed, so this also works when it is forgotten. Afterwards "
        "nothing can be recovered except from a backup, with the passphrase of that time. Older "
        "copies "
        "in the store's folder are named, not touched.",
        "Other users are not touched."),
    .options = remove_options,
    .examples = EXAMPLES({"preft user remove mira", "Delete mira."}),
    .min_operands = 1,
    .max_operands = 1,
    .area = AREA_PEOPLE,
    .run = run_remove,
};

const command user_command = {
    .name = "user",
    .summary = "Create, list, change and delete users",
    .synopsis = TEXTS("add|list|passwd|recovery|remove"),
    .description = TEXTS("Users share one store (`--home`) and can see only the names of each "
                         "other. Each one's profiles, conversations and settings are encrypted "
                         "under a key of their own."),
    .subcommands = SUBCOMMANDS(&add_command, &list_command, &passwd_command, &recovery_command,
                               &remove_command),
    .see_also = TEXTS("preft-profile 1", "preft-security 7"),
    .area = AREA_PEOPLE,
};
