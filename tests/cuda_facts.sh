#!/bin/bash
# usage: cuda_facts.sh NVCC DEVICE FILE.cu...
#
# What the compiler says of each kernel on one device (90 = sm_90): registers of a thread, bytes of
# shared memory of a block, bytes spilled.
set -eu
nvcc=$1 device=$2
shift 2
if [ -z "$nvcc" ]; then
    echo "CUDA: not found"
    exit 77
fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for file in "$@"; do
    "$nvcc" -std=c++17 -O3 -I. -gencode "arch=compute_$device,code=sm_$device" -Xptxas -v \
        -c -o "$out/object" "$file" 2>>"$out/log"
done
c++filt <"$out/log" | tr -d "'" | awk -v device="$device" '
    /Compiling entry function/ { sub(/.*function /, ""); sub(/ for sm_.*/, ""); sub(/^void /, "")
                                 sub(/\(.*/, ""); name = $0 }
    / bytes spill stores/ { for (i = 1; i < NF; i++) if ($(i + 1) == "bytes" && $(i + 2) == "spill") spill += $i }
    /Used [0-9]+ registers/ { shared = 0
        for (i = 1; i <= NF; i++) { if ($i == "Used") registers = $(i + 1); if ($(i + 2) == "smem,") shared = $i }
        printf "%4d %6d %6d  %s\n", registers, shared, spill, name | "sort -k4"
        total += spill; spill = 0; kernels++ }
    BEGIN { printf "sm_%s: registers, shared bytes, spilled bytes, kernel\n", device; fflush() }
    END { close("sort -k4"); printf "%d kernels, %d bytes spilled\n", kernels, total }'
