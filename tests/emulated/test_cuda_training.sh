#!/bin/bash
# tier: model
# The golden data of training on the emulated CUDA backend (see test_cuda.sh).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/emulated/common.sh
emulate_cuda
run "golden data of training" "$build/tests/check_reference" --isa cuda --models tiny-llama \
    --only training tests/data
