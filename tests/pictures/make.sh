#!/bin/bash
# usage: make.sh PREFT OUT
# Plays tests/pictures/*.script with the real model and makes a picture of every :cells step: SVG
# files in the folder OUT. The model is $PREFT_TEST_MODEL, else the default one.
set -eu
preft=$(readlink -f "$1")
out=$2
cd "$(dirname "$0")/../.."
model=${PREFT_TEST_MODEL:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -n "$model" ] || model=$("$preft" model pull --quiet | tail -n 1)
export HOME=$work XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config PREFT_CONFIG=
export LC_ALL=C.UTF-8 TZ=UTC TERM=dumb
unset PREFT_HOME PREFT_MODELS NO_COLOR COLORFGBG

setting() { sed -n "s/^# $2: *//p" "$1"; }

mkdir -p "$out"
for script in tests/pictures/*.script; do
    home=$work/$(basename "$script" .script)
    for user in $(setting "$script" users); do
        (umask 077 && echo "pw-$user" >"$work/pw-$user")
        "$preft" user add "$user" --home "$home" --kdf interactive --quiet --passphrase-file "$work/pw-$user"
    done
    setting "$script" profile | while read -r user name folder; do
        [ "$folder" != - ] || { "$preft" profile create "$name" --user "$user" --home "$home" --quiet \
            --passphrase-file "$work/pw-$user" && continue; }
        "$preft" profile import "$name" "$folder" --user "$user" --home "$home" --model "$model" \
            --quiet --passphrase-file "$work/pw-$user"
    done
    setting "$script" history | while read -r user name file; do
        "$preft" history import "$file" --profile "$name" --user "$user" --home "$home" --quiet \
            --passphrase-file "$work/pw-$user"
    done
    read -ra words <<<"$(setting "$script" options)"
    "$preft" chat --home "$home" --model "$model" --size "$(setting "$script" size)" \
        --script "$script" "${words[@]}" </dev/null >"$work/cells"
    awk -v OUT="$out" -f tests/pictures/svg.awk "$work/cells"
done
ls -l "$out"
