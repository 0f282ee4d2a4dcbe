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
leave_nothing() { # the programs end when their terminal does; what they still write is no matter
    tmux -S "$socket" kill-server 2>/dev/null
    for _ in $(seq 100); do rm -rf "$work" 2>/dev/null && break; sleep 0.1; done
}
trap leave_nothing EXIT
export HOME=$work XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config PREFT_CONFIG=
export LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=xterm-256color SHELL=/bin/bash
unset PREFT_HOME PREFT_MODELS NO_COLOR TMUX

mux() { tmux -S "$socket" "$@"; }
keys() { mux send-keys -t t "$@"; }
screen() { mux capture-pane -p -t t; }

# Waits until a command succeeds, at most two minutes. What is waited for must stay once it is there:
# text that scrolls or is drawn for a moment may be gone before anybody looks.
becomes() { # COMMAND...
    local end=$((SECONDS + 120))
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $end ]; then
            echo "not so in time: $*" && screen
            return 1
        fi
        sleep 0.1
    done
}
shows() { screen | grep -qE -e "$1"; } # PATTERN
hides() { # PATTERN: is not on the screen, which is there
    local text
    text=$(screen) && ! grep -qE -e "$1" <<<"$text"
}
appears() { becomes shows "$1"; }
gone() { becomes hides "$1"; }

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
# reports, not in the alternate screen. (What is typed differs from what it prints, however the
# terminal wraps it.)
sane() {
    keys "stty -a | tr ' ;' '\\n\\n' | grep -cxE 'icanon|echo|isig|opost'; echo mar''ker" Enter
    appears '^marker' || return 1
    shows '^4$' || { echo "stty:" && screen && return 1; }
    becomes flags '#{alternate_on}#{mouse_any_flag}#{mouse_sgr_flag} #{cursor_flag}' '000 1' || return 1
    keys "clear" Enter
    gone '^marker'
}
flags() { [ "$(mux display-message -p -t t "$1")" = "$2" ]; } # FORMAT VALUE

# An empty screen of the shell: what is waited for next can't be what stood there before.
fresh() {
    keys "clear" Enter
    gone 'left [0-9]|Passphrase|no profile|^mira>' >/dev/null
}

start() { # WORDS...
    keys "clear; $PREFT chat --home $work/home --model $PWD/$model --isa ref --threads 1 $*; echo left \$?" Enter
}
# The rows of the screen from FROM to TO that end with a border.
borders() { # FROM TO
    screen | sed -n "$1,$2p" | grep -c '│$'
}
sign_in() { # NAME
    appears 'Passphrase' && keys -l "pw-$1" && keys Enter && appears "$1 · no profile"
}
program() { pgrep -P "$(mux display-message -p -t t '#{pane_pid}')" -x preft; }

# Sends the draft, which begins with TEXT, and waits until it has left the editor. Keys that come in
# one piece with the Enter would make a paste of it.
send() { # TEXT
    appears "> $1" && keys Enter && gone "> $1"
}
NO_ANSWER='⠋|⠙|⠸|⠴|⠦|⠇' # for `gone`: no pane shows the mark of an answer under way
# The Esc that stops an answer; a key right behind it would be read as Alt and that key.
stop_answer() { keys Escape && gone "$NO_ANSWER" && settled; }

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
