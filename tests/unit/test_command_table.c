/* The command table: complete, without clashes, fit to be printed. */
#include "commands/command.h"
#include "commands/help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Calls check for every command and sub-command. */
static void each_command(void (*check)(const command *c))
{
    for (const command *const *c = command_table; *c; c++) {
        check(*c);
        for (const command *const *s = (*c)->subcommands; s && *s; s++)
            check(*s);
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static void check_texts(const command *c)
{
    assert_non_null(c->summary);
    if (ends_with(c->summary, ".")) fail_msg("%s: the summary ends with a full stop", c->name);
    if (!c->description || !c->description[0]) fail_msg("%s: no description", c->name);
    for (const char *const *p = c->description; *p; p++)
        if (!strchr(".:", (*p)[strlen(*p) - 1])) fail_msg("%s: \"%s\" is cut", c->name, *p);
    if (!c->run == !c->subcommands) fail_msg("%s: either run or sub-commands", c->name);
    for (const char *const *r = c->see_also; r && *r; r++) {
        const char *space = strrchr(*r, ' ');
        if (!space || strlen(space) != 2 || space[1] < '1' || space[1] > '8')
            fail_msg("%s: \"%s\" is not \"NAME SECTION\"", c->name, *r);
    }
}

static void texts(void **state)
{
    (void)state;
    each_command(check_texts);
}

static void check_option(const command *c, const option_spec *o)
{
    if (!o->help || !ends_with(o->help, "."))
        fail_msg("%s --%s: the help is no sentence", c->name, o->name);
    if ((o->kind == OPTION_FLAG) != !o->value)
        fail_msg("%s --%s: what is its value called?", c->name, o->name);
    if ((o->kind == OPTION_INT || o->kind == OPTION_REAL) && !(o->low < o->high))
        fail_msg("%s --%s: empty range", c->name, o->name);
    if (o->kind == OPTION_CHOICE && (!o->choices || !o->choices[0]))
        fail_msg("%s --%s: no choices", c->name, o->name);
}

static void check_options(const command *c)
{
    const option_spec *tables[OPTIONS_MAX_TABLES];
    const option_spec *all[256];
    size_t n = 0;
    command_tables(c, tables);
    for (const option_spec *const *t = tables; *t; t++) {
        for (const option_spec *o = *t; o->kind != OPTION_END; o++) {
            check_option(c, o);
            for (size_t i = 0; i < n; i++) {
                if (strcmp(all[i]->name, o->name) == 0)
                    fail_msg("%s: two options --%s", c->name, o->name);
                if (o->letter && all[i]->letter == o->letter)
                    fail_msg("%s: -%c is --%s and --%s", c->name, o->letter, all[i]->name, o->name);
            }
            assert_true(n < sizeof all / sizeof *all);
            all[n++] = o;
        }
    }
}

static void options_are_distinct(void **state)
{
    (void)state;
    each_command(check_options);
}

static void check_found(const command *c)
{
    assert_ptr_equal(command_find(c->name), c);
}

static void names(void **state)
{
    (void)state;
    each_command(check_found);
    assert_null(command_find("nosuch"));
    assert_null(command_find(""));
    for (const command *const *c = command_table; *c; c++)
        for (const command *const *s = (*c)->subcommands; s && *s; s++)
            assert_memory_equal((*s)->name, (*c)->name, strlen((*c)->name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(options_are_distinct),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
