#!/bin/bash
# Line mode through pipes: answers alone on standard output, no control bytes anywhere, what went
# wrong on standard error with the right exit code.
set -u
cd "$(dirname "$0")/../.." || exit 1
PREFT=${PREFT:-$PWD/preft}
bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export HOME=$work XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config PREFT_CONFIG=
export LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=xterm
unset PREFT_HOME PREFT_MODELS

check() { # TITLE COMMAND...
    local title=$1
    shift
    if "$@"; then echo "ok $title"; else echo "FAIL $title" && bad=1 && head -c 500 "$work/err"; fi
}
chat() { # WORDS: standard input is the caller's
    "$PREFT" chat --home "$work/home" --model tests/data/models/tiny-llama/tiny-llama-q8_0.gguf \
        --isa ref --threads 1 "$@" >"$work/out" 2>"$work/err"
}
(umask 077 && echo pw-mira >"$work/pw" && echo wrong >"$work/wrong")
for user in mira jonas; do
    "$PREFT" user add $user --home "$work/home" --kdf interactive --quiet --passphrase-file "$work/pw" || exit 1
done
"$PREFT" profile import letters tests/data/adapters/tiny-llama/lora-qv --position prefill --user mira \
    --home "$work/home" --model tests/data/models/tiny-llama/tiny-llama-q8_0.gguf --quiet \
    --passphrase-file "$work/pw" || exit 1
# Bytes below 0x20 but tab and line feed, and those that begin an 8-bit control.
controls() { LC_ALL=C grep -aqP '[\x00-\x08\x0b-\x1f\x7f]' "$work/out" "$work/err"; }

printf 'one question\nanother \\\nof two lines\n' | chat --user mira --passphrase-file "$work/pw"
check "two messages are answered" [ $? -eq 0 ]
check "nothing is said beside the answers" eval '! grep -aqv "no longer fit" "$work/err"'
check "no control bytes" eval '! controls'
"$PREFT" history export --all --user mira --home "$work/home" --passphrase-file "$work/pw" >"$work/saved" 2>&1
check "a backslash joins lines" grep -aq 'another \\nof two lines' "$work/saved"
printf '/conversations\n/profiles\n/profile letters\n/new\nhello\n/nonsense\n//slash\n/resume 1\n/quit\nnever\n' |
    chat --user mira --passphrase-file "$work/pw"
check "commands" [ $? -eq 0 ]
check "a list of conversations" grep -aq '^1 one question$' "$work/out"
check "a list of profiles" grep -aq '^letters$' "$work/out"
check "a profile" grep -aq '^(letters (lorap r2))$' "$work/err"
check "an unknown command is not sent" grep -aq 'no such command' "$work/err"
check "resumed with its text" grep -aq '^> one question$' "$work/out"
"$PREFT" history export --all --user mira --home "$work/home" --passphrase-file "$work/pw" >"$work/saved" 2>&1
check "a text that begins with a slash" grep -aq '"/slash"' "$work/saved"
check "what follows /quit is not sent" eval '! grep -aq never "$work/saved"'
echo hi | chat --user mira --passphrase-file "$work/wrong"
check "a wrong passphrase: exit code 4" eval "[ $? -eq 4 ] && [ ! -s '$work/out' ] && grep -aq wrong '$work/err'"
echo hi | chat --passphrase-file "$work/pw"
check "several people and no name: exit code 2" eval "[ $? -eq 2 ] && grep -aq -- '--user' '$work/err'"
echo hi | setsid "$PREFT" chat --user mira --home "$work/home" \
    --model tests/data/models/tiny-llama/tiny-llama-q8_0.gguf >"$work/out" 2>"$work/err"
check "no way to ask for the passphrase: exit code 2" eval "[ $? -eq 2 ] && grep -aq -- '--passphrase-f' '$work/err'"
chat --user mira </dev/null
check "input from /dev/null: exit code 2, with a hint" eval "[ $? -eq 2 ] && grep -aq 'preft run' '$work/err'"
# Where the system gives no more descriptors it is said; nothing falls over.
said_or_done() { # EXIT-CODE
    [ "$1" -eq 0 ] || { [ "$1" -eq 1 ] && grep -q 'descriptors\|Too many open files' "$work/err"; }
}
for n in 8 9; do
    (ulimit -n $n && echo /quit | chat --user mira --passphrase-file "$work/pw")
    check "with $n descriptors, line by line" said_or_done $?
    (ulimit -n $n && echo ':expect "mira"' | chat --script - --size 60x10)
    check "with $n descriptors, on a screen" said_or_done $?
done

exit $bad
