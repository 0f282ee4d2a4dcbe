/* A store in a fresh folder, for tests: cheap stretching, and everything removed at the end. */
#ifndef PF_TESTS_STORE_FIXTURE_H
#define PF_TESTS_STORE_FIXTURE_H

#include "profiles/history.h"
#include "profiles/profile.h"
#include "profiles/store.h"
#include "profiles/user.h"

typedef struct {
    char folder[64]; /* temporary; the store is in folder/home */
    char *home;
    store *store;
    pf_err err;
} store_fixture;

/* The cheapest cost that is accepted. */
store_options fixture_options(void);
void fixture_open(store_fixture *f);   /* makes the folder, opens the store */
void fixture_reopen(store_fixture *f); /* closes and opens it again */
void fixture_close(store_fixture *f);  /* closes, removes all files */

session *fixture_user(store_fixture *f, const char *name, const char *passphrase);
pf_status fixture_sign_in(store_fixture *f, const char *name, const char *passphrase,
                          session **out);
int64_t fixture_message(session *s, int64_t conversation, history_role role, const char *text);

/* Runs SQL on the store's file behind the program's back. The store may be open. */
void fixture_sql(store_fixture *f, const char *sql);
/* The first column of the first row as a number. */
int64_t fixture_sql_number(store_fixture *f, const char *sql);
/* Turns over the lowest bit of a byte of a column, in the row with the smallest id. */
void fixture_flip(store_fixture *f, const char *table, const char *column, int64_t at);
/* Lets the n-th step of the store's database from now on fail, once; 0: none. */
void fixture_fail_step(store_fixture *f, int step);
/* Adds the transactions that change the store to *n; NULL: no longer. */
void fixture_count_commits(store_fixture *f, int *n);
/* How often bytes occur in the files of the store's folder. */
size_t fixture_find_bytes(store_fixture *f, const void *bytes, size_t len);

/* A small valid adapter blob (LoRA, rank 1); seed varies the content. Appends to out. */
void fixture_adapter(unsigned seed, buf *out);

#define assert_ok(f, call)                                                                         \
    do {                                                                                           \
        (f)->err.text[0] = '\0';                                                                   \
        pf_status assert_status = (call);                                                          \
        if (assert_status != PF_OK) fail_msg("%s: %s", #call, (f)->err.text);                      \
    } while (0)
#define assert_status(f, call, wanted)                                                             \
    do {                                                                                           \
        (f)->err.text[0] = '\0';                                                                   \
        pf_status assert_status = (call);                                                          \
        if (assert_status != (wanted))                                                             \
            fail_msg("%s: \"%s\" instead of \"%s\": %s", #call, status_words(assert_status),       \
                     status_words(wanted), (f)->err.text);                                         \
    } while (0)
#define assert_text(text, part)                                                                    \
    do {                                                                                           \
        if (!strstr((text), (part))) fail_msg("\"%s\" lacks \"%s\"", (text), (part));              \
    } while (0)

#endif
