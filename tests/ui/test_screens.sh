#!/bin/bash
# Plays every tests/ui/*.script on a screen in memory and compares what it writes with the *.screen
# file beside it. `UPDATE=1 tests/ui/test_screens.sh [NAME...]` writes those files anew.
#
# Lines at the top of a script prepare its store (a fresh one, in a clean home) and its screen:
#   # size: COLSxROWS                 (80x24)
#   # users: NAME...                  their passphrase is "pw-NAME"
#   # profile: USER NAME ADAPTER      an adapter folder of the tiny model; prefill-only (-: none)
#   # history: USER PROFILE FILE      conversations under a profile
#   # config: FILE                    the preft.conf (none)
#   # options: WORDS...               for preft chat
#   # environment: NAME=VALUE...      for preft chat
set -u
cd "$(dirname "$0")/../.." || exit 1
PREFT=${PREFT:-$PWD/preft}
model=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf
adapters=tests/data/adapters/tiny-llama
bad=0
work=$(TMPDIR=/tmp mktemp -d) || exit 1 # short: paths stand in messages
trap 'rm -rf "$work"' EXIT
export HOME=$work XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config PREFT_CONFIG=
export LANG=C.UTF-8 LC_ALL=C.UTF-8 TZ=UTC TERM=dumb
unset PREFT_HOME PREFT_MODELS NO_COLOR

setting() { sed -n "s/^# $2: *//p" "$1"; }

password() { # USER: a private file with the passphrase
    (umask 077 && printf 'pw-%s\n' "$1" >"$work/pw-$1")
    echo "$work/pw-$1"
}

# Fills the store that a script begins with.
prepare() { # SCRIPT HOME
    local user name adapter file
    for user in $(setting "$1" users); do
        "$PREFT" user add "$user" --home "$2" --kdf interactive --quiet \
            --passphrase-file "$(password "$user")" || return 1
    done
    setting "$1" profile | while read -r user name adapter; do
        [ "$adapter" != - ] || { "$PREFT" profile create "$name" --user "$user" --home "$2" --quiet \
            --passphrase-file "$(password "$user")" && continue; } || exit 1
        "$PREFT" profile import "$name" "$adapters/$adapter" --position prefill --user "$user" \
            --home "$2" --model "$model" --quiet --passphrase-file "$(password "$user")" || exit 1
    done || return 1
    setting "$1" history | while read -r user name file; do
        "$PREFT" history import "$file" --profile "$name" --user "$user" --home "$2" --quiet \
            --passphrase-file "$(password "$user")" || exit 1
    done
}

play() { # SCRIPT HOME
    local size words variables
    size=$(setting "$1" size)
    read -ra words <<<"$(setting "$1" options)"
    read -ra variables <<<"$(setting "$1" environment)"
    env PREFT_CONFIG="$(setting "$1" config)" "${variables[@]}" "$PREFT" chat --home "$2" --model "$model" --isa ref --threads 1 --kdf interactive \
        --size "${size:-80x24}" --script "$1" "${words[@]}" </dev/null
}

check() { # NAME
    local script=tests/ui/$1.script screen=tests/ui/$1.screen home=$work/$1 code=0
    if ! prepare "$script" "$home"; then
        echo "FAIL $1: its store could not be made" && bad=1
        return
    fi
    play "$script" "$home" >"$work/$1.out" 2>"$work/$1.err" || code=$?
    [ -n "${UPDATE:-}" ] && cp "$work/$1.out" "$screen"
    if [ $code -eq 0 ] && cmp -s "$screen" "$work/$1.out"; then
        echo "ok $1"
    else
        echo "FAIL $1 (exit code $code)" && bad=1
        cat "$work/$1.err"
        diff -u "$screen" "$work/$1.out"
    fi
}

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
    for script in tests/ui/*.script; do
        [ -e "${script%.script}.screen" ] || [ -n "${UPDATE:-}" ] || continue
        name=$(basename "$script" .script)
        [ "$name" = demo ] || names+=("$name")
    done
fi
for name in "${names[@]}"; do check "$name"; done
exit $bad
