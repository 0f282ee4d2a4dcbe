#!/bin/bash
# tier: model
# The golden data of training on the emulated CUDA backend (see test_cuda.sh).
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build/release}
export PREFT_CUDA_LIBRARY=$PWD/$build/libpreft-cuda-emulated.so
if ! [ -e "$PREFT_CUDA_LIBRARY" ]; then
    echo "skip training on the emulation: make $build/libpreft-cuda-emulated.so builds it"
    exit 77
fi
log=${TMPDIR:-/tmp}/run.log
if "$build/tests/check_reference" --isa cuda --models tiny-llama --only training tests/data >"$log" 2>&1; then
    echo "ok golden data of training on emulated CUDA"
else
    tail -20 "$log"
    echo "FAIL golden data of training on emulated CUDA"
fi
