#!/bin/bash
# usage: gpu.sh pack DIR     on a machine with all packages: what the run needs, into DIR
#        gpu.sh [run] [OUT]  on a machine with a GPU, nvcc and CUDA's libraries, and nothing else of
#                            ours; from DIR or from a built source tree. Results go to OUT (gpu-out)
#        gpu.sh emulate OUT  the same without a GPU, on the host emulation: a dry run, small
#
# Builds the CUDA library for the device that is there, runs the op tests and the golden cases of
# the tiny models, compute-sanitizer on them, then `preft bench` with random weights of the shapes of
# Qwen 2.5 0.5B, Llama 3.1 8B and Llama 3.1 70B in 4 bits. Each part has a time limit; all of them
# together take less than 8 minutes. Exit code 1 if a test failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
[ -e "$here/kernels" ] || here=$(dirname "$here") # in the source tree this file lies in tests/
cd "$here" || exit 1

TESTS="test_cuda_linear test_cuda_rows test_cuda_attention test_cuda_step test_train_ops test_train_products"

# --- packing ---------------------------------------------------------------------------------------

# The libraries of a program but for the system's own, which every machine has.
libraries_of() {
    ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
        grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|ld-linux[^/]*|libcuda|libcublas[^/]*)\.so'
}

pack() { # DIR
    local to=$1 file
    mkdir -p "$to"/{build/release/tests,lib,tests/data,kernels/cuda} || exit 1
    cp preft "$to/" || exit 1
    cp tests/gpu.sh "$to/gpu.sh"
    for file in $TESTS check_reference; do cp "build/release/tests/$file" "$to/build/release/tests/"; done
    for file in "$to/preft" "$to"/build/release/tests/*; do strip "$file" && libraries_of "$file"; done |
        sort -u | xargs -I{} cp -L {} "$to/lib/"
    cp kernels/*.h kernels/types.c "$to/kernels/"
    cp kernels/cuda/* "$to/kernels/cuda/"
    cp -r tests/data/{models,adapters,forward,quant,training} "$to/tests/data/"
    for file in build/release/libpreft-cuda{,-emulated}.so; do
        [ ! -e "$file" ] || cp "$file" "$to/build/release/"
    done
    du -sh "$to"
}

# --- running ---------------------------------------------------------------------------------------

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

find_nvcc() { command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null; }

# Compiles the library for the device that is there, all files at once.
build_library() {
    local nvcc objects=$OUT/objects
    nvcc=$(find_nvcc) || { echo "FAIL nvcc: not found"; return 1; }
    mkdir -p "$objects" build/release
    gcc -std=gnu11 -O2 -fPIC -fvisibility=hidden -I. -c -o "$objects/types.o" kernels/types.c || return 1
    # shellcheck disable=SC2016 # expanded by the inner shell
    printf '%s\n' kernels/cuda/*.cu | xargs -P "$(nproc)" -I{} sh -c '
        "$0" -std=c++17 -O3 -I. -arch=native -Xcompiler -fPIC,-fvisibility=hidden -c \
            -o "$1/$(basename "$2" .cu).o" "$2"' "$nvcc" "$objects" {} || return 1
    "$nvcc" -shared -cudart static -arch=native -o build/release/libpreft-cuda.so "$objects"/*.o -lcublas
}

# Whether there is a library whose own libraries are here: another CUDA than that it was built with
# has others.
library_fits() {
    [ -e build/release/libpreft-cuda.so ] &&
        ! ldd build/release/libpreft-cuda.so | grep -q 'not found'
}

# The limit of a part: its own, and never more than what is left of all.
limit() { # SECONDS
    local left=$((TOTAL - SECONDS))
    [ "$left" -gt 1 ] || left=1
    echo $(($1 < left ? $1 : left))
}

# One check with a time limit: `ok NAME` or `FAIL NAME` and the end of its output.
check() { # SECONDS NAME COMMAND...
    local seconds name=$2 log
    seconds=$(limit "$1")
    shift 2
    log="$OUT/$(tr ' /:' '___' <<<"$name").log"
    if timeout -k 5 "$seconds" "$@" >"$log" 2>&1; then
        echo "ok $name"
    else
        echo "FAIL $name (exit code $?)"
        tail -n 12 "$log" | sed 's/^/    | /'
        failed=1
    fi
}

# A bench with its table on the screen and in CSV. Out of time is not a failed test.
bench() { # SECONDS NAME KIND ARGUMENTS...
    local seconds name=$2
    seconds=$(limit "$1")
    shift 2
    say "bench $name"
    timeout -k 5 "$seconds" ./preft bench "$@" --device cuda --repeats 1 --seconds 2 \
        --csv "$OUT/$name.csv" >"$OUT/$name.txt" 2>&1 || echo "(ended early, exit code $?)"
    tail -n 40 "$OUT/$name.txt"
}

golden() { # SECONDS ISA MODELS GROUPS
    check "$1" "golden data $2" build/release/tests/check_reference --isa "$2" --models "$3" \
        --only "$4" tests/data
}

run_sanitizer() {
    local tool name
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    [ -n "$tool" ] || { echo "skip compute-sanitizer: not found"; return; }
    for name in test_cuda_rows test_cuda_attention test_cuda_step; do
        check 30 "memcheck $name" "$tool" --error-exitcode 9 "build/release/tests/$name"
    done
    check 30 "racecheck test_cuda_attention" "$tool" --tool racecheck --error-exitcode 9 \
        build/release/tests/test_cuda_attention
}

# SHAPE TYPE ANSWERS ADAPTERS RANKS: 4-bit types; the K formats need rows of 256 columns.
SHAPES="qwen-2.5-0.5b Q4_0 1,8,32,128,512 1,8,64,512 8,16,64
llama-3.1-8b Q4_K 1,8,32,128,512 1,8,64,512 8,16,64
llama-3.1-70b Q4_K 1,8,32,128 1,8,64 16"

run_benches() {
    local shape type answers adapters ranks
    while read -r shape type answers adapters ranks; do
        bench 25 "prefill-$shape" prefill --model "random:$shape:$type" --contexts 512,2048 --batches 1
        bench 35 "decode-$shape" decode --model "random:$shape:$type" --contexts 128 \
            --batches "$answers"
        bench 60 "adapters-$shape" adapters --model "random:$shape:$type" --phases decode,prefill \
            --profiles "$adapters" --ranks "$ranks"
    done <<<"$SHAPES"
}

run() { # on a device
    local name
    nvidia-smi || { echo "no NVIDIA device here"; exit 77; }
    say "building the CUDA library"
    library_fits || build_library || exit 1
    say "tests"
    for name in $TESTS; do check 40 "$name" "build/release/tests/$name"; done
    golden 60 cuda tiny-llama,tiny-llama3,tiny-qwen2,tiny-qwen3,tiny-wide \
        forward,adapters,turns,quant,training
    golden 40 cuda-exact tiny-llama,tiny-qwen2 forward,adapters,turns
    golden 40 cuda-precise tiny-llama,tiny-qwen2,tiny-wide forward,adapters,quant
    say "compute-sanitizer"
    run_sanitizer
    run_benches
}

emulate() { # a dry run: every part but the sanitizer, small
    local name tiny=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf
    TOTAL=1500
    export PREFT_CUDA_LIBRARY=$PWD/build/release/libpreft-cuda-emulated.so
    [ -e "$PREFT_CUDA_LIBRARY" ] || { echo "no $PREFT_CUDA_LIBRARY: make check-cuda builds it"; exit 77; }
    say "tests"
    for name in $TESTS; do check 300 "$name" "build/release/tests/$name"; done
    golden 600 cuda tiny-qwen2 adapters
    say "compute-sanitizer"
    echo "skip compute-sanitizer: it needs a device"
    bench 200 prefill-tiny prefill --model "$tiny" --contexts 16 --batches 1 --quick
    bench 200 decode-tiny decode --model "$tiny" --contexts 4 --batches 1,3 --quick
    bench 200 adapters-tiny adapters --model "$tiny" --profiles 2 --ranks 4 --prompt 4 --prefill 8 \
        --kinds lorap,direft --quick
}

start() { # FUNCTION OUT
    OUT=$2 TOTAL=470 failed=0
    mkdir -p "$OUT" || exit 1
    export LD_LIBRARY_PATH=$PWD/lib:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64
    "$1"
    say "done"
    exit "$failed"
}

case ${1:-run} in
pack) pack "${2:?pack needs a folder}" ;;
run | emulate) start "${1:-run}" "${2:-gpu-out}" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
