#!/bin/bash
# usage: demo.sh PREFT [--model PATH]
# Plays tests/ui/demo.script, a chat of two people, with the default model on a screen in memory and
# prints the screens. The store is a temporary one.
set -u
cd "$(dirname "$0")/.." || exit 1
preft=${1:-./preft}
model=("${@:2}")
script=tests/ui/demo.script
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export LC_ALL=C.UTF-8

setting() { sed -n "s/^# $1: *//p" "$script"; }

for user in $(setting users); do
    (umask 077 && printf 'pw-%s\n' "$user" >"$work/passphrase")
    "$preft" user add "$user" --home "$work/home" --kdf interactive --quiet \
        --passphrase-file "$work/passphrase" || exit 1
    setting "profile $user" | while read -r name folder; do
        "$preft" profile import "$name" "$folder" --user "$user" --home "$work/home" "${model[@]}" --quiet \
            --passphrase-file "$work/passphrase" || exit 1
    done || exit 1
done
read -ra words <<<"$(setting options)"
"$preft" chat --home "$work/home" --kdf interactive --size "$(setting size)" --script "$script" \
    "${model[@]}" "${words[@]}" </dev/null
