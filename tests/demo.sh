#!/bin/bash
# usage: demo.sh PREFT
# Plays tests/ui/demo.script, a chat of two people, with the default model on a screen in memory and
# prints the screens. The store is a temporary one.
set -u
cd "$(dirname "$0")/.." || exit 1
preft=${1:-./preft}
script=tests/ui/demo.script
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export LC_ALL=C.UTF-8

setting() { sed -n "s/^# $1: *//p" "$script"; }

for user in $(setting users); do
    (umask 077 && printf 'pw-%s\n' "$user" >"$work/passphrase")
    "$preft" user add "$user" --home "$work/home" --kdf interactive --quiet \
        --passphrase-file "$work/passphrase" || exit 1
done
read -ra words <<<"$(setting options)"
"$preft" chat --home "$work/home" --kdf interactive --size "$(setting size)" --script "$script" \
    "${words[@]}" </dev/null
