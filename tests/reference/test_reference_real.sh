#!/bin/bash
# The golden data of the real model through tests/reference.
# tier: model
set -u
cd "$(dirname "$0")/../.." || exit 1
[ -r "${PREFT_TEST_MODEL:-}" ] || { echo "skip real model: PREFT_TEST_MODEL names no file"; exit 77; }
"${BUILD:-build/release}/tests/check_reference" --models smollm2-135m --isa avx2,avx512 \
    --real "$PREFT_TEST_MODEL" tests/data | awk -f tests/reference/groups.awk
