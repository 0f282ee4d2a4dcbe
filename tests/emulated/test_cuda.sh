#!/bin/bash
# The CUDA backend on machines without a GPU: its sources compiled against the host emulation of
# tests/cuda_emulation, then the op tests, steps and engine, and the golden data on them. On a
# machine with a GPU tests/gpu.sh runs the same tests on the device. Training: test_cuda_training.sh.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/emulated/common.sh
emulate_cuda
for program in test_cuda_linear test_cuda_rows test_cuda_attention test_cuda_step; do
    run "$program" "$build/tests/$program"
done
for program in test_train_ops test_train_products; do
    run "$program" "$build/tests/$program"
done
golden() { # ISA MODELS GROUPS
    run "golden data of $2 ($1): $3" "$build/tests/check_reference" --isa "$1" --models "$2" \
        --only "$3" tests/data
}
golden cuda tiny-llama,tiny-llama3,tiny-qwen2 forward,adapters
golden cuda tiny-llama turns
golden cuda tiny-llama,tiny-wide quant
golden cuda-precise tiny-qwen2 forward
golden cuda-precise tiny-llama,tiny-wide quant
