#!/bin/bash
# tier: model
# The AVX-512 and AMX kernels on machines that lack them: built through SIMDe and plain C (Makefile,
# "AVX-512 and AMX"), then the op tests and the golden data run on them. Machines with both run them
# in the ordinary tests.
set -u
cd "$(dirname "$0")/../.." || exit 1
if grep -q avx512_vnni /proc/cpuinfo && grep -q amx_int8 /proc/cpuinfo; then
    echo "ok the ordinary tests run the AVX-512 and AMX kernels on this machine"
    exit 0
fi
build=build/release/emulated-isa
programs=(test_ops_linear test_ops_rows test_ops_attention test_train_ops test_train_products check_reference)
if ! make "${programs[@]/#/$build/}" >"${TMPDIR:-/tmp}/build.log" 2>&1; then
    tail -20 "${TMPDIR:-/tmp}/build.log"
    echo "FAIL the emulated kernels are built"
    exit 1
fi
. tests/emulated/common.sh
DEVICE='emulated AVX-512 and AMX'
for program in "${programs[@]:0:5}"; do
    run "$program" "$build/$program"
done
# Beside AVX-512, AMX changes products of many rows only: the forward passes show it.
run "golden data" "$build/check_reference" --isa avx512 --only forward,adapters,turns,quant,training tests/data
run "golden data, tiles," "$build/check_reference" --isa amx --only forward,quant tests/data
