#!/bin/bash
# Every command in the table: --help works and shows the common parts, a wrong option and a wrong
# command are refused with exit code 2 and a hint, the committed man page is the table's.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

check() { # TITLE COMMAND...
    local title=$1
    shift
    if "$@"; then echo "ok $title"; else echo "FAIL $title" && bad=1; fi
}

# Runs preft with the words; its exit code has to be CODE, its two outputs go to $work.
runs() { # CODE WORDS...
    local code=$1 got=0
    shift
    "$PREFT" "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
    [ "$got" -eq "$code" ] || { echo "preft $*: exit code $got, not $code" && cat "$work/err" && false; }
}

says() { grep -qF -e "$2" "$work/$1" || { echo "no \"$2\" in $1:" && cat "$work/$1" && false; }; }
silent() { [ ! -s "$work/$1" ] || { echo "$1 is not empty:" && cat "$work/$1" && false; }; }

help_of() { # WORDS...
    runs 0 "$@" --help && silent err && says out "Usage: preft $*" && says out "--json" &&
        says out "Exit codes:" && ! grep -nE '.{81}' "$work/out"
}
refuses_option_of() { # WORDS...
    runs 2 "$@" --no-such-option && silent out && says err "unknown option --no-such-option"
}
page_of() { # NAME
    "$PREFT" manual "$1" >"$work/page" && diff -u "man/preft-$1.1" "$work/page"
}

mapfile -t commands < <("$PREFT" manual --list)
check "the table has commands" [ ${#commands[@]} -gt 2 ]
for name in "${commands[@]}"; do
    read -ra words <<<"$name"
    check "$name --help" help_of "${words[@]}"
    check "$name --no-such-option" refuses_option_of "${words[@]}"
    # Hidden commands have no page.
    if [ ${#words[@]} -eq 1 ] && "$PREFT" --help | grep -q "^  $name "; then
        check "$name: the committed man page is current (make man)" page_of "$name"
        check "$name: preft.1 refers to its page" grep -q "^\.It Xr preft-$name 1" man/preft.1
    fi
done

config_page() { "$PREFT" manual preft.conf >"$work/page" && diff -u man/preft.conf.5 "$work/page"; }
check "preft.conf(5) is current (make man)" config_page
sample() { # every setting and key of the file that is printed is accepted as it stands
    "$PREFT" chat --print-config | sed -n '/^\[keys\]/,$s/^#\([a-z-]* = \)/\1/p' >"$work/keys"
    { echo '[keys]' && cat "$work/keys"; } >"$work/preft.conf"
    [ "$(wc -l <"$work/keys")" -gt 50 ] && PREFT_CONFIG=$work/preft.conf runs 0 help
}
check "chat --print-config" sample

unknown() { runs 2 nosuch && silent out && says err '"nosuch"' && says err "preft --help"; }
near() { runs 2 hepl && says err 'did you mean `preft help`'; }
near_option() { runs 2 help --qiet && says err "did you mean --quiet"; }
no_command() { runs 2 && silent out && says err "Usage: preft"; }
version() { runs 0 --version && grep -qE '^preft [0-9]+\.[0-9]+\.[0-9]+$' "$work/out"; }
bad_number() { runs 2 help --threads "$1" && says err "--threads" && says err "$1"; }
bad_choice() { runs 2 help --kv-type=f64 && says err "auto, f32, f16"; }
early_option() { runs 2 note --user mira list && says err "unknown option --user (usage: preft note COMMAND"; }
no_topic() { runs 2 help nothing && says err 'no command "nothing"; `preft help` lists them'; }
full_disk() { [ ! -e /dev/full ] || ! "$PREFT" help >/dev/full 2>"$work/err" && says err "standard output"; }
closed_pipe() { "$PREFT" completion bash 2>"$work/err" | true; silent err; }
closed_before() { # whatever is written first fails already
    exec 7> >(exit 0)
    wait $!
    "$PREFT" completion bash >&7 2>"$work/err"
    exec 7>&-
    silent err
}
closed_output() { ! "$PREFT" help >&- 2>"$work/err" && says err "standard output"; }
json_error() { runs 2 help --json nosuch; says out '{"error":{' && says err nosuch; }
config() { # TEXT CODE PART
    printf '%b' "$1" >"$work/preft.conf"
    PREFT_CONFIG=$work/preft.conf runs "$2" help && says "$([ "$2" -eq 0 ] && echo out || echo err)" "$3"
}
check "an unknown command" unknown
check "a misspelt command" near
check "a misspelt option" near_option
check "no command and no terminal" no_command
check "an option before the command that takes it" early_option
check "help for no command" no_topic
check "--version" version
for value in 5x 1e99 -1 "" 99999999999999999999; do
    check "--threads '$value'" bad_number "$value"
done
check "--kv-type f64" bad_choice
check "output to a full disk" full_disk
check "output to a closed pipe" closed_pipe
check "output to a pipe that was closed before" closed_before
check "closed standard output" closed_output
check "an error as JSON" json_error
check "a configuration file" config 'threads = 2\n[help]\n' 0 "Usage:"
check "a wrong name in it" config 'threds = 2\n' 2 "line 1: unknown option threds: did you mean threads?"
check "a wrong command in it" config '[nosuch]\na = b\n' 2 "there is no command nosuch"

# With a store: what is said when there is nothing, and when a name or a file is wrong.
(umask 077 && echo "correct horse battery" >"$work/passphrase")
mine() { # CODE WORDS...
    runs "$@" --home "$work/home" --passphrase-file "$work/passphrase"
}
empty_store() {
    mine 0 user add --kdf interactive mira && mine 0 profile list --user mira && silent out && says err "preft profile create" &&
        mine 0 history list --user Mira && silent out && says err "no conversations" &&
        mine 0 history search --user mira word && silent out && says err "nothing found"
}
wrong_user() { # is told before a passphrase is asked for
    runs 5 profile list --home "$work/home" --user jonas && says err "there is no user jonas"
}
one_conversation() {
    echo '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]}' >"$work/one.jsonl"
    mine 0 history import "$work/one.jsonl" && says err "1 conversation saved"
}
no_backup() {
    echo "no database" >"$work/letter"
    runs 3 restore --home "$work/home" "$work/letter" &&
        says err "the backup $work/letter is refused and nothing was changed: it is not a store of preft"
}
backup_is_there() {
    local to=("$work/backup" --home "$work/home")
    runs 0 backup "${to[@]}" && runs 2 backup "${to[@]}" && says err "--replace" && runs 0 backup --replace "${to[@]}"
}
no_store() { runs 5 doctor --home "$work/home" && says out "ok   device: " && says err "preft user add"; }
quotes() { runs 2 doctor two words && says err '"two" is one argument too many (several words need quotes to be one); usage: preft doctor'; }
check "doctor without a store" no_store
check "one word too many" quotes
check "an empty store" empty_store
check "a user that is not there" wrong_user
check "one conversation" one_conversation
check "no backup" no_backup
check "a backup that is there already" backup_is_there

completes() { # WORD... ; the last one is completed
    bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _preft; printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$work/completion" "$@"
}
bash_completion() {
    "$PREFT" completion bash >"$work/completion" && completes preft he | grep -qx help &&
        completes preft help --kv-t | grep -qx -- --kv-type && completes preft help --kv-type f | grep -qx f16 &&
        mkdir "$work/names" && : >"$work/names/a model.gguf" &&
        completes preft check "$work/names/a" | grep -qxF "$work/names/a model.gguf"
}
check "bash completion" bash_completion
for shell in zsh fish; do
    "$PREFT" completion $shell >"$work/$shell"
    if command -v $shell >/dev/null; then
        check "$shell completion is well-formed" $shell -n "$work/$shell"
    else
        echo "skip $shell completion is well-formed: no $shell here"
    fi
done

if command -v mandoc >/dev/null; then
    lint() { ! mandoc -T lint -W warning man/*.[1-8] | grep .; }
    check "man pages pass mandoc -T lint" lint
else
    echo "skip man pages pass mandoc -T lint: no mandoc here"
fi
exit $bad
