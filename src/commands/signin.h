/* Signing in for commands: passphrases from the terminal (without echo), from a descriptor or from
 * a private file; never from arguments or the environment. */
#ifndef PF_COMMANDS_SIGNIN_H
#define PF_COMMANDS_SIGNIN_H

#include "commands/command.h"
#include "profiles/user.h"

/* Reads one secret: the next line of --passphrase-fd or --passphrase-file if given (so that a
 * command that asks for two reads two lines), else from the terminal with prompt ("Passphrase of
 * mira: "). PF_USAGE where there is no way to ask. *out is the caller's (secret_free). */
pf_status signin_read_secret(const command_context *ctx, const char *prompt, secret **out,
                             pf_err *err);
/* A new passphrase: on a terminal it is asked twice. Warns when it is short. */
pf_status signin_read_new(const command_context *ctx, const char *prompt, secret **out,
                          pf_err *err);

/* Opens the store of --home, which must exist. */
pf_status signin_open_store(const command_context *ctx, store **out, pf_err *err);

/* Opens the store and signs in --user (may be left out when there is only one user). Both are the
 * caller's: session_unref, then store_close. */
pf_status signin_open(const command_context *ctx, store **st, session **out, pf_err *err);

/* The same as one thing to hold: what commands on a user's data begin and end with. */
typedef struct {
    store *store;
    session *session;
} signed_in;
pf_status signin_begin(const command_context *ctx, signed_in *s, pf_err *err);
void signin_end(signed_in *s); /* also after a failed signin_begin, or zeroed */

/* Asks "QUESTION " on the terminal and reads a line (echoed). PF_USAGE without a terminal. Owned.
 */
pf_status signin_ask(const command_context *ctx, const char *question, char **out, pf_err *err);

#endif
