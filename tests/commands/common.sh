# shellcheck shell=bash
# For tests that run the program from outside; to be sourced. Makes a scratch folder in $work with
# a clean home, and offers the functions below. A script ends with `exit $failed`.
PREFT=${PREFT:-./preft}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export PREFT_CONFIG='' PREFT_HOME=$work/home
failed=0

# One test: its name is printed behind ok or FAIL, and what the command said behind FAIL.
check() { # TEXT COMMAND...
    local text=$1
    shift
    if "$@" >"$work/check" 2>&1; then
        echo "ok $text"
    else
        echo "FAIL $text"
        sed 's/^/    /' "$work/check"
        # shellcheck disable=SC2034 # the script's exit code
        failed=1
    fi
}

# Runs a command with its output in $work/out and $work/err: it ends with that exit code, and so
# never by a signal.
ends() { # CODE COMMAND...
    local want=$1 got
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ $got -eq "$want" ] || { echo "exit code $got"; cat "$work/err"; return 1; }
}
code() { ends "$1" "$PREFT" "${@:2}"; } # CODE WORDS...

# What the last command wrote to out or err holds a text, or doesn't.
says() { grep -qF -- "$2" "$work/$1" || { echo "no \"$2\" in $1:"; cat "$work/$1"; return 1; }; }
silent() { ! grep -qF -- "$2" "$work/$1" || { echo "\"$2\" in $1:"; cat "$work/$1"; return 1; }; }

# A private file with mira's passphrase, for --passphrase-file.
passphrase() { # FILE
    (umask 077 && printf 'a passphrase of mira\n' >"$1")
}
