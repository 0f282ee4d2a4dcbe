#!/bin/bash
# tier: model
# Plays tests/ui/model/*.script with the real model. They hold their own expectations, so nothing is
# compared afterwards: the words of an answer may differ a little between instruction sets.
set -u
cd "$(dirname "$0")/../.." || exit 1
PREFT=${PREFT:-$PWD/preft}
if [ -z "${PREFT_TEST_MODEL:-}" ]; then
    echo "skip screens with the real model: PREFT_TEST_MODEL is not set"
    exit 77
fi
bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export HOME=$work XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config PREFT_CONFIG=
export LC_ALL=C.UTF-8 TERM=dumb
unset PREFT_HOME PREFT_MODELS

setting() { sed -n "s/^# $2: *//p" "$1"; }

for script in tests/ui/model/*.script; do
    name=$(basename "$script" .script)
    for user in $(setting "$script" users); do
        (umask 077 && printf 'pw-%s\n' "$user" >"$work/pw")
        "$PREFT" user add "$user" --home "$work/$name" --kdf interactive --quiet \
            --passphrase-file "$work/pw" || exit 1
    done
    read -ra words <<<"$(setting "$script" options)"
    if "$PREFT" chat --home "$work/$name" --model "$PREFT_TEST_MODEL" --kdf interactive \
        --size "$(setting "$script" size)" --script "$script" "${words[@]}" >"$work/out" 2>&1 </dev/null; then
        echo "ok $name"
    else
        echo "FAIL $name" && bad=1
        cat "$work/out"
    fi
done
exit $bad
