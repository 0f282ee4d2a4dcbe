/* What `preft check` and `preft model show` say of a model, an adapter or a weights file: built
 * once as JSON, printed as such or as lines of text. */
#ifndef PF_COMMANDS_DESCRIBE_H
#define PF_COMMANDS_DESCRIBE_H

#include "base/json.h"
#include "models/model.h"
#include "models/safetensors.h"
#include "profiles/adapter_file.h"

/* Owned objects. */
json_t *describe_model(const model *m);
json_t *describe_adapter(const adapter_summary *a);
json_t *describe_safetensors(const safetensors *st);

/* "  key: value" lines on standard output; null members are left out. */
void describe_print(const json_t *object);

#endif
