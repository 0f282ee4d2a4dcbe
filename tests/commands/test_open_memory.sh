#!/bin/bash
# tier: model
# What opening a model costs in memory: its packed weights and 20 % more beside keys and values, so
# never the file and the packed weights together. Counted by the kernel, so no clock matters.
set -u
if [ -z "${PREFT_TEST_MODEL:-}" ]; then
    echo "skip memory of an opened model: no PREFT_TEST_MODEL"
    exit 0
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
if ! "$PREFT" --home "$work/home" --model "$PREFT_TEST_MODEL" bench prefill --quick --contexts 32 \
    --batches 1 --json >"$work/out" 2>"$work/err"; then
    tail -5 "$work/err"
    echo "FAIL bench prefill runs"
    exit 1
fi
number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$work/out" | head -1; }
peak=$(number open_peak_bytes) file=$(number model_bytes) kv=$(number kv_bytes)
text="opening takes ${peak:-?} bytes at most, the file has ${file:-?}, keys and values ${kv:-?}"
if [ "${peak:-0}" -gt "${file:-0}" ] && [ $((peak * 5)) -le $(((file + kv) * 6)) ]; then
    echo "ok $text"
else
    echo "FAIL $text"
fi
