#!/bin/bash
# tier: model
# The AVX-512 kernels on machines that have none: built through SIMDe in a variant of their own
# (make AVX512=emulated), then the op tests and the golden data run on them. Machines with AVX-512
# run them in the ordinary tests.
set -u
cd "$(dirname "$0")/../.." || exit 1
if grep -q avx512_vnni /proc/cpuinfo; then
    echo "ok the ordinary tests run the AVX-512 kernels on this machine"
    exit 0
fi
tests=build/release-avx512-emulated/tests
programs=(test_ops_linear test_ops_rows test_ops_attention test_train_ops check_reference)
if ! make AVX512=emulated "${programs[@]/#/$tests/}" >"${TMPDIR:-/tmp}/build.log" 2>&1; then
    tail -20 "${TMPDIR:-/tmp}/build.log"
    echo "FAIL the emulated AVX-512 kernels are built"
    exit 1
fi
run() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"${TMPDIR:-/tmp}/run.log" 2>&1; then
        echo "ok $name on emulated AVX-512"
    else
        tail -20 "${TMPDIR:-/tmp}/run.log"
        echo "FAIL $name on emulated AVX-512"
    fi
}
for program in test_ops_linear test_ops_rows test_ops_attention test_train_ops; do
    run "$program" "$tests/$program"
done
run "golden data" "$tests/check_reference" --isa avx512 \
    --only forward,adapters,turns,quant,training tests/data
