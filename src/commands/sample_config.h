/* A preft.conf to begin with, made from the tables of options and actions. */
#ifndef PF_COMMANDS_SAMPLE_CONFIG_H
#define PF_COMMANDS_SAMPLE_CONFIG_H

#include "base/buf.h"
#include "base/options.h"

/* Appends the file: everything is commented out and explained. chat: the options of `preft chat`.
 */
void sample_config_write(const option_spec *chat, buf *out);

#endif
