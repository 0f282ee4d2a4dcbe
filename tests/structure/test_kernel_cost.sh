#!/bin/bash
# How many instructions the five hottest kernels take on fixed shapes, counted by callgrind, so that
# no clock and no neighbour matters. A kernel may take 5 % more than its line says. The lines hold
# for one compiler; with another one, or where the machine or the build differ, nothing is compared.
set -u
BUILD=${BUILD:-build/release}
program=$BUILD/tests/test_kernel_cost
# function, what its work is, units of work, instructions
table='linear_q4_1 multiply-add_of_32_rows 10616832 1347468
linear_q8_0 multiply-add_of_8_rows 4718592 1144126
attend_f16 multiply-add_of_attention 2359296 889200
adapt multiply-add_of_an_adapter 1081344 348947
quantize_row value 23040 56480'
compiler=gcc-12

skip_all() {
    while read -r name _; do echo "skip instructions of $name: $1"; done <<<"$table"
    exit 0
}
[[ $BUILD == build/release ]] || skip_all "the counts hold for build/release"
command -v valgrind >/dev/null || skip_all "no valgrind here"
grep -qw avx2 /proc/cpuinfo || skip_all "no AVX2 here"
found=$("${CC:-cc}" --version | head -1 | grep -qi clang && echo clang || echo "gcc-$("${CC:-cc}" -dumpversion | cut -d. -f1)")
[[ $found == "$compiler" ]] || skip_all "counts of $compiler, this is $found"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
if ! valgrind --tool=callgrind --callgrind-out-file="$work/out" "$program" >"$work/log" 2>&1; then
    tail -20 "$work/log"
    echo "FAIL the kernels run under callgrind"
    exit 1
fi
callgrind_annotate --auto=no --threshold=100 "$work/out" >"$work/functions" 2>/dev/null
failed=0
while read -r name unit units expected; do
    counted=$(awk -v name="$name" '$0 ~ ":" name "( |\\.|$)" { gsub(",", "", $1); n += $1 }
                                   END { print n + 0 }' "$work/functions")
    text=$(awk -v n="$counted" -v u="$units" -v e="$expected" -v w="${unit//_/ }" -v f="$name" \
        'BEGIN { printf "%s: %d instructions, %.4f for a %s, %+.1f %%", f, n, n / u, w, 100 * (n / (e ? e : 1) - 1)
                 exit !(n > 0 && n <= e * 1.05) }') && echo "ok $text" || { echo "FAIL $text"; failed=1; }
done <<<"$table"
exit $failed
