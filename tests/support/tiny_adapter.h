/* Random adapters for tests: as a blob, the way the engine loads them. */
#ifndef PF_TESTS_TINY_ADAPTER_H
#define PF_TESTS_TINY_ADAPTER_H

#include "base/buf.h"
#include "kernels/types.h"
#include "models/architecture.h"

#include <stdbool.h>
#include <stdint.h>

/* All seven maps (LoRA) or every layer (DiReFT), float32, with an effect that can't be missed.
 * *out is appended to. */
void tiny_adapter(const model_config *config, bool direft, bool prefill_only, int rank,
                  uint64_t seed, buf *out);

/* Numbers that float32, bfloat16 and float16 hold exactly, written as `type`: the same adapter,
 * whatever the type. */
void tiny_adapter_as(kn_type type, const model_config *config, bool direft, int rank, uint64_t seed,
                     buf *out);

#endif
