#!/bin/bash
# tier: soak
# Fifty kills of trainings (tests/unit/test_train_kill.c).
set -u
cd "$(dirname "$0")/../.." || exit 1
program=${BUILD:-build/release}/tests/test_train_kill
[ -x "$program" ] || { echo "skip fifty kills: $program was not built"; exit 77; }
if out=$(KILLS=50 "$program" 2>&1); then
    echo "ok fifty kills: $(echo "$out" | grep kills,)"
else
    echo "$out"
    echo "FAIL fifty kills"
    exit 1
fi
