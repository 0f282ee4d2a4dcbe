# shellcheck shell=bash
# For tests of code on emulated devices; to be sourced from the root of the sources.

# One program: its name is printed behind ok or FAIL, with DEVICE, and the end of what it said before
# FAIL.
run() { # NAME COMMAND...
    local name=$1 begin=$SECONDS
    shift
    if "$@" >"${TMPDIR:-/tmp}/run.log" 2>&1; then
        echo "ok $name on $DEVICE ($((SECONDS - begin)) s)"
    else
        tail -20 "${TMPDIR:-/tmp}/run.log"
        echo "FAIL $name on $DEVICE"
    fi
}

# The CUDA backend on the host emulation of tests/cuda_emulation; ends the test where it isn't built.
emulate_cuda() {
    DEVICE='emulated CUDA'
    build=${BUILD:-build/release}
    export PREFT_CUDA_LIBRARY=$PWD/$build/libpreft-cuda-emulated.so
    [ -e "$PREFT_CUDA_LIBRARY" ] && return
    echo "skip the CUDA backend on the emulation: make $build/libpreft-cuda-emulated.so builds it"
    exit 77
}
