/* conversation file: one conversation written for other programs and for people. Private to ui/. */
#ifndef PF_UI_CONVERSATION_FILE_H
#define PF_UI_CONVERSATION_FILE_H

#include "profiles/history.h"

/* Writes a saved conversation to a new file (0600): JSONL if the name ends in .jsonl, else
 * Markdown. "~/" is the home folder. *path is what was written, owned by the caller. */
pf_status conversation_write(session *s, int64_t id, const char *name, char **path, pf_err *err);

/* A name to offer: "~/A-poem-about-rain.md": letters and digits of the title, the rest as hyphens.
 */
void conversation_offer_file(const char *title, buf *out);

#endif
