#!/bin/sh
# usage: fuzz.sh SECONDS FUZZER...
# Runs each libFuzzer program with its committed corpus (tests/fuzz/corpus/NAME, not changed) and
# what earlier runs found (build/fuzz/NAME). Prints one line each; fails if one found something.
set -u
seconds=$1
shift
if [ $# -eq 0 ]; then
    echo "no fuzzers in tests/fuzz" >&2
    exit 1
fi

fuzz() { # FUZZER NAME FOUND
    corpus=tests/fuzz/corpus/$2
    [ -n "$(ls "$corpus")" ] || return 1
    "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$3-" "$3" "$corpus"
}

passed=0
failed=0
for fuzzer in "$@"; do
    name=$(basename "$fuzzer")
    found=build/fuzz/$name
    mkdir -p "$found"
    if fuzz "$fuzzer" "$name" "$found" >"$found.log" 2>&1; then
        passed=$((passed + 1))
        echo "ok   $name: $(grep -o 'Done [0-9]* runs' "$found.log")"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        tail -n 40 "$found.log"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
