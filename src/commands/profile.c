#include "profiles/profile.h"
#include "base/json.h"
#include "base/mem.h"
#include "commands/command.h"
#include "commands/open.h"
#include "commands/print.h"
#include "commands/signin.h"
#include "profiles/adapter_file.h"
#include "profiles/history.h"
#include "profiles/profile_settings.h"
#include "profiles/secret.h"

#include <stdlib.h>
#include <string.h>

static struct {
    const char *system, *positions;
    int64_t version;
    bool force, replace;
    int position;
} opt;

static pf_status find_id(signed_in *s, const char *name, int64_t *id, pf_err *err)
{
    profile_info info;
    pf_status status = profile_find(s->session, name, &info, err);
    if (status == PF_OK || (status == PF_DAMAGED && info.id)) {
        *id = info.id;
        status = PF_OK;
    }
    profile_info_free(&info);
    return status;
}

/* --- what a profile is ------------------------------------------------------------------------ */

static json_t *hex_json(const unsigned char digest[32], bool there)
{
    char hex[65];
    if (!there) return json_null();
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return json_string(hex);
}

static json_t *object_json(const char *text)
{
    json_t *value = NULL;
    if (text && *text) (void)json_parse(text, strlen(text), "a record", &value, NULL);
    return value ? value : json_object();
}

static json_t *version_json(const profile_version *v)
{
    return json_pack(
        "{s:I, s:I, s:s, s:i, s:I, s:o, s:o, s:s, s:o, s:o}", "number", (json_int_t)v->number,
        "created_ms", (json_int_t)v->created_ms, "kind", v->kind, "rank", v->max_rank, "bytes",
        (json_int_t)v->bytes, "digest", hex_json(v->digest, true), "base_digest",
        hex_json(v->base_digest, v->has_base_digest), "base_name", v->base_name, "training",
        object_json(v->training), "provenance", object_json(v->provenance));
}

static json_t *profile_json(const profile_info *p)
{
    return json_pack("{s:I, s:s, s:I, s:I, s:o, s:I, s:b, s:o}", "id", (json_int_t)p->id, "name",
                     p->name, "created_ms", (json_int_t)p->created_ms, "updated_ms",
                     (json_int_t)p->updated_ms, "settings", object_json(p->settings), "versions",
                     (json_int_t)p->n_versions, "damaged", p->damaged, "adapter",
                     p->has_adapter && !p->damaged ? version_json(&p->current) : json_null());
}

static const char *kind_of(const profile_info *p)
{
    return p->damaged ? "damaged" : p->has_adapter ? p->current.kind : "plain";
}

/* --- create ----------------------------------------------------------------------------------- */

static pf_status run_create(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    profile_settings settings = profile_settings_none();
    char *json = NULL;
    int64_t id = 0;
    pf_status status = PF_OK;
    if (opt.system) status = profile_settings_set(&settings, "system", opt.system, err);
    if (status == PF_OK && opt.positions)
        status = profile_settings_set(&settings, "positions", opt.positions, err);
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    json = profile_settings_write(&settings);
    if (status == PF_OK) status = profile_create(s.session, ctx->argv[0], json, &id, err);
    if (status == PF_OK && ctx->global->json)
        print_json(json_pack("{s:I, s:s}", "id", (json_int_t)id, "name", ctx->argv[0]));
    else if (status == PF_OK)
        note(ctx, "profile \"%s\" made", ctx->argv[0]);
    wipe_text(json);
    profile_settings_free(&settings);
    signin_end(&s);
    return status;
}

static const option_spec create_options[] = {
    OPTION_STRING_SPEC('s', "system", &opt.system, "TEXT", "System text of its conversations."),
    OPTION_STRING_SPEC(0, "positions", &opt.positions, "POLICY",
                       "Which tokens the adapter acts on: `turns`, `prompt`, `all` or `none`."),
    OPTIONS_END};

static const command create_command = {
    .name = "profile create",
    .summary = "Create a profile without an adapter",
    .synopsis = TEXTS("--user U [--system TEXT] NAME"),
    .description =
        TEXTS("Creates the profile NAME: the plain model with settings, until an adapter "
              "is imported or trained. Names have at most 64 characters; a slash, "
              "invisible characters and the words base and none are refused."),
    .options = create_options,
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_PEOPLE,
    .run = run_create,
};

/* --- list, show ------------------------------------------------------------------------------- */

static pf_status run_list(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    profile_list list = {0};
    json_t *array = json_array();
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = profile_list_load(s.session, &list, err);
    for (size_t i = 0; i < list.n; i++) {
        const profile_info *p = &list.items[i];
        if (ctx->global->json) {
            json_array_append_new(array, profile_json(p));
            continue;
        }
        print_plain(p->name);
        printf("\t%s", kind_of(p));
        if (p->has_adapter && !p->damaged)
            printf(" r%d\tversion %lld", p->current.max_rank, (long long)p->current.number);
        putchar('\n');
    }
    if (ctx->global->json && (status == PF_OK || status == PF_DAMAGED))
        print_json(array);
    else
        json_decref(array);
    if (!ctx->global->json && status == PF_OK && list.n == 0)
        note(ctx,
             "no profiles; `preft profile create`, `preft profile import` and `preft train` make "
             "some");
    profile_list_free(&list);
    signin_end(&s);
    return status;
}

static const command list_command = {
    .name = "profile list",
    .summary = "List a user's profiles",
    .synopsis = TEXTS("--user U"),
    .description =
        TEXTS("Prints one line for each profile: name, kind and rank of its adapter, and "
              "the version in use."),
    .groups = GROUP_SIGN_IN,
    .area = AREA_PEOPLE,
    .run = run_list,
};

/* How many of the conversations that a version was made from have been deleted since. */
static size_t count_deleted(session *s, const profile_version *v)
{
    json_t *provenance = object_json(v->provenance), *id;
    size_t n = 0, i;
    json_array_foreach(json_object_get(provenance, "conversations"), i, id)
    {
        conversation_info info = {0};
        n += conversation_get(s, json_integer_value(id), &info, NULL) == PF_NOT_FOUND;
        conversation_info_free(&info);
    }
    json_decref(provenance);
    return n;
}

/* "12 examples, loss 3.778 to 1.070": what the record of its training says. */
static void print_training(const profile_version *v)
{
    json_t *record = object_json(v->training);
    const json_t *examples = json_object_get(record, "examples");
    const json_t *before = json_object_get(record, "loss_before");
    const json_t *after = json_object_get(record, "loss_served");
    if (json_is_integer(examples))
        printf("\t%lld examples", (long long)json_integer_value(examples));
    if (json_is_number(before) && json_is_number(after))
        printf("\tloss %.3f to %.3f", json_number_value(before), json_number_value(after));
    json_decref(record);
}

static void print_version_line(session *s, const profile_version *v, bool current)
{
    char date[20];
    size_t deleted = count_deleted(s, v);
    printf("  %c %lld\t%s\t%s r%d\t%llu bytes\t", current ? '*' : ' ', (long long)v->number,
           print_time(v->created_ms, date), v->kind, v->max_rank, (unsigned long long)v->bytes);
    print_plain(v->base_name);
    print_training(v);
    putchar('\n');
    if (deleted)
        printf(
            "      learned from %zu conversations that have been deleted since; train anew or go "
            "to another version, then `preft profile remove --version %lld`\n",
            deleted, (long long)v->number);
}

static json_t *dated_version_json(session *s, const profile_version *v)
{
    json_t *object = version_json(v);
    json_object_set_new(object, "deleted_conversations",
                        json_integer((json_int_t)count_deleted(s, v)));
    return object;
}

static void print_profile(session *s, const profile_info *p, const profile_version_list *versions)
{
    char date[20];
    printf("name: ");
    print_plain(p->name);
    printf("\nkind: %s\nchanged: %s\nsettings: ", kind_of(p), print_time(p->updated_ms, date));
    print_plain(p->settings);
    putchar('\n');
    if (versions->n > 0) puts("versions:");
    for (size_t i = 0; i < versions->n; i++)
        print_version_line(s, &versions->items[i],
                           p->has_adapter && versions->items[i].number == p->current.number);
}

static pf_status run_show(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    profile_info info = {0};
    profile_version_list versions = {0};
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = profile_find(s.session, ctx->argv[0], &info, err);
    if (status == PF_OK) status = profile_versions_load(s.session, info.id, &versions, err);
    if (info.id && ctx->global->json) {
        json_t *object = profile_json(&info), *array = json_array();
        for (size_t i = 0; i < versions.n; i++)
            json_array_append_new(array, dated_version_json(s.session, &versions.items[i]));
        json_object_set_new(object, "versions", array);
        print_json(object);
    } else if (info.id) {
        print_profile(s.session, &info, &versions);
    }
    profile_version_list_free(&versions);
    profile_info_free(&info);
    signin_end(&s);
    return status;
}

static const command show_command = {
    .name = "profile show",
    .summary = "Show a profile and its adapter versions",
    .synopsis = TEXTS("--user U NAME"),
    .description = TEXTS("Prints settings and versions; the one in use has a star."),
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_PEOPLE,
    .run = run_show,
};

/* --- rename, copy, remove --------------------------------------------------------------------- */

static pf_status run_rename(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    int64_t id = 0;
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = find_id(&s, ctx->argv[0], &id, err);
    if (status == PF_OK) status = profile_rename(s.session, id, ctx->argv[1], err);
    signin_end(&s);
    return status;
}

static const command rename_command = {
    .name = "profile rename",
    .summary = "Rename a profile",
    .synopsis = TEXTS("--user U OLD NEW"),
    .description = TEXTS("Gives the profile OLD the name NEW. Nothing else changes."),
    .min_operands = 2,
    .max_operands = 2,
    .groups = GROUP_SIGN_IN,
    .area = AREA_PEOPLE,
    .run = run_rename,
};

static pf_status run_copy(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    int64_t id = 0, copy = 0;
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = find_id(&s, ctx->argv[0], &id, err);
    if (status == PF_OK) status = profile_copy(s.session, id, ctx->argv[1], &copy, err);
    signin_end(&s);
    return status;
}

static const command copy_command = {
    .name = "profile copy",
    .summary = "Copy a profile",
    .synopsis = TEXTS("--user U NAME COPY"),
    .description = TEXTS("Makes the profile COPY with the settings of NAME and the adapter version "
                         "in use. Conversations stay with NAME."),
    .min_operands = 2,
    .max_operands = 2,
    .groups = GROUP_SIGN_IN,
    .area = AREA_PEOPLE,
    .run = run_copy,
};

static pf_status run_remove(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    int64_t id = 0;
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = find_id(&s, ctx->argv[0], &id, err);
    if (status == PF_OK)
        status = opt.version ? profile_remove_version(s.session, id, opt.version, err)
                             : profile_remove(s.session, id, err);
    if (status == PF_OK && opt.version)
        note(ctx, "version %lld deleted", (long long)opt.version);
    else if (status == PF_OK)
        note(ctx, "profile \"%s\" deleted with its adapters", ctx->argv[0]);
    signin_end(&s);
    return status;
}

static const option_spec remove_options[] = {
    OPTION_INT_SPEC(0, "version", &opt.version, "N", 1, 1e9,
                    "Delete this adapter version only; it must not be the one in use."),
    OPTIONS_END};

static const command remove_command = {
    .name = "profile remove",
    .summary = "Delete a profile",
    .synopsis = TEXTS("--user U [--version N] NAME"),
    .description = TEXTS("Deletes the profile with all adapter versions and checkpoints for good. "
                         "Its conversations stay, without a profile."),
    .options = remove_options,
    .min_operands = 1,
    .max_operands = 1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_PEOPLE,
    .run = run_remove,
};

/* --- set, use --------------------------------------------------------------------------------- */

static pf_status change_setting(profile_settings *settings, const char *text, pf_err *err)
{
    const char *equals = strchr(text, '=');
    if (!equals) return profile_settings_set(settings, text, NULL, err);
    char *key = xmemdup0(text, (size_t)(equals - text));
    pf_status status = profile_settings_set(settings, key, equals + 1, err);
    free(key);
    return status;
}

static pf_status run_set(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    profile_info info = {0};
    profile_settings settings = profile_settings_none();
    pf_status status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = profile_find(s.session, ctx->argv[0], &info, err);
    if (status == PF_OK) status = profile_settings_parse(info.settings, &settings, err);
    for (int i = 1; i < ctx->argc && status == PF_OK; i++)
        status = change_setting(&settings, ctx->argv[i], err);
    if (status == PF_OK) {
        char *json = profile_settings_write(&settings);
        status = profile_set_settings(s.session, info.id, json, err);
        wipe_text(json);
    }
    profile_settings_free(&settings);
    profile_info_free(&info);
    signin_end(&s);
    return status;
}

static const command set_command = {
    .name = "profile set",
    .summary = "Change settings of a profile",
    .synopsis = TEXTS("--user U NAME KEY=VALUE..."),
    .description = TEXTS(
        "Sets `system`, `positions`, `temperature`, `top_k`, `top_p`, `min_p`, `repeat_penalty`, "
        "`repeat_last`, `max_tokens` or `seed`. KEY alone unsets it."),
    .examples = EXAMPLES(
        {"preft profile set --user mira letters temperature=0.7 max_tokens=400", "Two settings."}),
    .min_operands = 2,
    .max_operands = -1,
    .groups = GROUP_SIGN_IN,
    .area = AREA_PEOPLE,
    .run = run_set,
};

static pf_status run_use(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    int64_t id = 0, number = 0;
    pf_status status = parse_int(ctx->argv[1], "the version", 0, INT64_MAX, &number, err);
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = find_id(&s, ctx->argv[0], &id, err);
    if (status == PF_OK) status = profile_use_version(s.session, id, number, err);
    signin_end(&s);
    return status;
}

static const command use_command = {
    .name = "profile use",
    .summary = "Switch to another adapter version",
    .synopsis = TEXTS("--user U NAME VERSION"),
    .description = TEXTS("Makes VERSION, as `preft profile show` lists them, the one in use: the "
                         "way back after a training that made the adapter worse. 0 is the plain "
                         "model. No version is lost."),
    .min_operands = 2,
    .max_operands = 2,
    .groups = GROUP_SIGN_IN,
    .area = AREA_PEOPLE,
    .run = run_use,
};

/* --- import, export --------------------------------------------------------------------------- */

/* As the newest version of the profile or, if there is none of the name, of a new one. */
static pf_status import_blob(signed_in *s, const char *name, const buf *blob, const model *m,
                             int64_t *number, pf_err *err)
{
    int64_t id = 0;
    const profile_version_record record = {.base_name = model_name(m),
                                           .provenance = "{\"imported\":true}"};
    pf_status status = find_id(s, name, &id, err);
    *number = 1;
    if (status == PF_NOT_FOUND)
        return profile_create_with(s->session, name, blob->data, blob->len, &record, &id, err);
    if (status != PF_OK) return status;
    return profile_add_version(s->session, id, blob->data, blob->len, &record, number, err);
}

static pf_status run_import(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    model *m = NULL;
    buf blob = {0}, warnings = {0};
    int64_t number = 0;
    const adapter_import_options how = {.force_base = opt.force,
                                        .position = (adapter_position)opt.position};
    pf_status status = open_model(ctx, &m, err);
    if (status == PF_OK) status = adapter_file_import(ctx->argv[1], m, &how, &blob, &warnings, err);
    if (warnings.len > 0) note(ctx, "%s", buf_str(&warnings));
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = import_blob(&s, ctx->argv[0], &blob, m, &number, err);
    if (status == PF_OK && ctx->global->json)
        print_json(json_pack("{s:s, s:I, s:I}", "name", ctx->argv[0], "version", (json_int_t)number,
                             "bytes", (json_int_t)blob.len));
    else if (status == PF_OK)
        note(ctx, "version %lld of profile \"%s\"", (long long)number, ctx->argv[0]);
    wipe_buf(&blob);
    buf_free(&warnings);
    signin_end(&s);
    model_close(m);
    return status;
}

static const char *const position_names[] = {"file", "prefill", "all", NULL};

static const option_spec import_options[] = {
    OPTION_CHOICE_SPEC(0, "position", &opt.position, "WHERE", position_names,
                       "Where the adapter acts: as the folder says (`file`, the default), on "
                       "prompts only (`prefill`) or on every token (`all`)."),
    OPTION_FLAG_SPEC(0, "force-base", &opt.force,
                     "Accept an adapter that records another base model, if its shapes fit."),
    OPTIONS_END};

static const command import_command = {
    .name = "profile import",
    .summary = "Import an adapter folder",
    .synopsis = TEXTS("--user U [--position WHERE] NAME FOLDER"),
    .description =
        TEXTS("Reads a PEFT LoRA or a DiReFT folder, checks every tensor against the "
              "base model and saves "
              "it, encrypted, as the newest version of the profile NAME, which is created if it "
              "does not exist. "
              "The folder is left as it is, unencrypted: delete it if others must not read it."),
    .options = import_options,
    .examples = EXAMPLES({"preft profile import --user mira letters ./lora-letters",
                          "Import into the profile letters."}),
    .see_also = TEXTS("preft-adapter 5"),
    .min_operands = 2,
    .max_operands = 2,
    .groups = GROUP_SIGN_IN | GROUP_MODEL,
    .area = AREA_PEOPLE,
    .run = run_import,
};

static pf_status run_export(const command_context *ctx, pf_err *err)
{
    signed_in s = {0};
    model *m = NULL;
    buf blob = {0};
    int64_t id = 0;
    pf_status status = open_model(ctx, &m, err);
    if (status == PF_OK) status = signin_begin(ctx, &s, err);
    if (status == PF_OK) status = find_id(&s, ctx->argv[0], &id, err);
    if (status == PF_OK) status = profile_read_adapter(s.session, id, opt.version, &blob, err);
    if (status == PF_OK)
        status = adapter_file_export(blob.data, blob.len, model_get_config(m), ctx->argv[1],
                                     opt.replace, err);
    if (status == PF_OK)
        note(ctx, "%s holds the adapter unencrypted; its files are yours alone (0600)",
             ctx->argv[1]);
    wipe_buf(&blob);
    signin_end(&s);
    model_close(m);
    return status;
}

static const option_spec export_options[] = {
    OPTION_INT_SPEC(0, "version", &opt.version, "N", 0, 1e9,
                    "This version in place of the one in use."),
    OPTION_FLAG_SPEC(0, "replace", &opt.replace, "Replace an adapter that is in FOLDER already."),
    OPTIONS_END};

static const command export_command = {
    .name = "profile export",
    .summary = "Export an adapter as a PEFT or DiReFT folder",
    .synopsis = TEXTS("--user U [--version N] [--replace] NAME FOLDER"),
    .description = TEXTS("Writes the adapter in use as adapter_config.json and "
                         "adapter_model.safetensors, readable by PEFT for LoRA kinds."),
    .options = export_options,
    .see_also = TEXTS("preft-adapter 5"),
    .min_operands = 2,
    .max_operands = 2,
    .groups = GROUP_SIGN_IN | GROUP_MODEL,
    .area = AREA_PEOPLE,
    .run = run_export,
};

const command profile_command = {
    .name = "profile",
    .summary = "Manage a user's profiles",
    .synopsis = TEXTS("create|list|show|rename|copy|remove|set|use|import|export"),
    .description = TEXTS("A profile is a name with settings and usually an adapter: a small set of "
                         "weights that personalises the model. All of it is encrypted."),
    .subcommands =
        SUBCOMMANDS(&create_command, &list_command, &show_command, &rename_command, &copy_command,
                    &remove_command, &set_command, &use_command, &import_command, &export_command),
    .see_also = TEXTS("preft-user 1", "preft-adapter 5"),
    .area = AREA_PEOPLE,
};
