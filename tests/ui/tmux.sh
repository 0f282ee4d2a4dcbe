# shellcheck shell=bash
# For tests that drive the real program in a real terminal (tmux); to be sourced. Makes a scratch
# folder in $work with a clean home, starts tmux with a shell, and offers the functions below.
# A test that includes it is skipped where tmux is missing.
if ! command -v tmux >/dev/null; then
    echo "skip all of it: tmux is not installed"
    exit 77
fi
PREFT=${PREFT:-$PWD/preft}
model=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf
bad=0
work=$(TMPDIR=/tmp mktemp -d) || exit 1 # short: paths stand in messages
socket=$work/tmux
trap 'tmux -S "$socket" kill-server 2>/dev/null; sleep 0.3; rm -rf "$work"' EXIT
export HOME=$work XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config PREFT_CONFIG=
export LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=xterm-256color SHELL=/bin/bash
unset PREFT_HOME PREFT_MODELS NO_COLOR TMUX

mux() { tmux -S "$socket" "$@"; }
keys() { mux send-keys -t t "$@"; }
screen() { mux capture-pane -p -t t; }

# Waits until a pattern is on the screen (gone: is not), at most a minute.
appears() { # PATTERN
    local end=$((SECONDS + 60))
    while [ $SECONDS -lt $end ]; do
        screen | grep -qE -e "$1" && return 0
        sleep 0.1
    done
    echo "\"$1\" did not appear:" && screen
    return 1
}
gone() { # PATTERN
    local end=$((SECONDS + 60))
    while [ $SECONDS -lt $end ]; do
        screen | grep -qE -e "$1" || return 0
        sleep 0.1
    done
    echo "\"$1\" stays:" && screen
    return 1
}

# Waits until the program has taken in what it was sent and shown what it does: its first thread
# slept whenever it was looked at, for longer than it waits for the rest of an escape sequence. A
# thread that waits for a core isn't asleep, so this holds on a busy machine too. Gives up waiting
# after 20 s: an answer that streams in may keep it awake.
settled() {
    local pid asleep=0 i status
    mux display-message -p -t t '' >/dev/null && mux display-message -p -t t '' >/dev/null
    pid=$(pgrep -n -f "[p]reft chat --home $work/home") || return 0
    for ((i = 0; i < 400 && asleep < 8; i++)); do
        sleep 0.05
        status=$(cut -d ' ' -f 3 "/proc/$pid/stat" 2>/dev/null) || return 0
        if [[ $status == [ST] ]]; then asleep=$((asleep + 1)); else asleep=0; fi
    done
    return 0
}

check() { # TITLE COMMAND...
    local title=$1
    shift
    if "$@"; then echo "ok $title"; else echo "FAIL $title" && bad=1; fi
}

# As check; without it the rest makes no sense.
must() { # TITLE COMMAND...
    check "$@"
    [ $bad -eq 0 ] || exit 1
}

# The shell's terminal as it should be: echo and line editing on, cursor visible, no mouse or paste
# reports, not in the alternate screen.
sane() {
    keys "stty -a | tr ';' '\\n' | grep -cE '(^| )(icanon|echo|isig|opost)( |\$)'; echo marker" Enter
    appears '^marker' || return 1
    screen | grep -qE '^[1-9]' || { echo "stty:" && screen && return 1; }
    local flags
    flags=$(mux display-message -p -t t '#{alternate_on}#{mouse_any_flag}#{mouse_sgr_flag} #{cursor_flag}')
    [ "$flags" = "000 1" ] || { echo "terminal flags: $flags" && return 1; }
    keys "clear" Enter
    gone '^marker'
}

# An empty screen of the shell: what is waited for next can't be what stood there before.
fresh() {
    keys "clear" Enter
    gone 'left|Passphrase|no profile' >/dev/null
}

start() { # WORDS...
    keys "clear; $PREFT chat --home $work/home --model $PWD/$model --isa ref --threads 1 $*; echo left \$?" Enter
}
sign_in() { # NAME
    appears 'Passphrase' && keys -l "pw-$1" && keys Enter && appears "$1 · no profile"
}
program() { pgrep -P "$(mux display-message -p -t t '#{pane_pid}')" -x preft; }

# A report of the mouse as the terminal sends it: button, column and row from 1, M (down) or m (up).
mouse() { # BUTTON X Y M|m
    keys -l "$(printf '\033[<%d;%d;%d%s' "$1" "$2" "$3" "$4")"
}

make_users() { # NAME...
    local user
    for user in "$@"; do
        (umask 077 && echo "pw-$user" >"$work/pw")
        "$PREFT" user add "$user" --home "$work/home" --kdf interactive --quiet \
            --passphrase-file "$work/pw" || exit 1
    done
}

open_terminal() { # COLS ROWS
    mux -f /dev/null new-session -d -s t -x "$1" -y "$2" "bash --norc --noprofile" || exit 1
    mux set-option -g escape-time 10
    keys "PS1='shell> '; cd $PWD; clear" Enter
    appears '^shell>' || exit 1
}
