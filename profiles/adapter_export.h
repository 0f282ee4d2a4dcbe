/* The configuration text of an adapter, for import and export. What a blob records itself
 * (position, base) is not part of the text that it keeps, so that importing an exported folder
 * gives the same bytes. */
#ifndef PF_PROFILES_ADAPTER_EXPORT_H
#define PF_PROFILES_ADAPTER_EXPORT_H

#include "base/json.h"
#include "models/adapter_blob.h"

/* The text of an imported configuration that goes into the blob; NULL if it says no more than
 * what export would generate from view. Owned. */
char *adapter_config_canonical(const json_t *root, const adapter_view *view,
                               const model_config *config);

/* The configuration that describes view, without position and base. Owned. NULL if no
 * configuration can (DiReFT with several ranks). */
json_t *adapter_config_generate(const adapter_view *view, const model_config *config);

#endif
