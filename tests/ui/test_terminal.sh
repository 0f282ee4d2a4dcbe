#!/bin/bash
# The real program in a real terminal (tmux): typing, two answers at once, resizing while text
# streams in, pastes, suspension, and every way out. After each the terminal has to be sane.
set -u
cd "$(dirname "$0")/../.." || exit 1
PREFT=${PREFT:-$PWD/preft}
if ! command -v tmux >/dev/null; then
    echo "skip all of it: tmux is not installed"
    exit 77
fi
model=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf
bad=0
work=$(mktemp -d) || exit 1
socket=$work/tmux
trap 'tmux -S "$socket" kill-server 2>/dev/null; sleep 0.3; rm -rf "$work"' EXIT
export HOME=$work XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config PREFT_CONFIG=
export LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=xterm-256color SHELL=/bin/bash
unset PREFT_HOME PREFT_MODELS NO_COLOR TMUX

mux() { tmux -S "$socket" "$@"; }
keys() { mux send-keys -t t "$@"; }
screen() { mux capture-pane -p -t t; }

# Waits until a pattern is on the screen, at most 10 s.
appears() { # PATTERN
    local i
    for ((i = 0; i < 100; i++)); do
        screen | grep -qE -e "$1" && return 0
        sleep 0.1
    done
    echo "\"$1\" did not appear:" && screen
    return 1
}
gone() { # PATTERN
    local i
    for ((i = 0; i < 100; i++)); do
        screen | grep -qE -e "$1" || return 0
        sleep 0.1
    done
    echo "\"$1\" stays:" && screen
    return 1
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

start() { # WORDS...
    keys "clear; $PREFT chat --home $work/home --model $PWD/$model --isa ref --threads 1 $*; echo left \$?" Enter
}
sign_in() { # NAME
    appears 'Passphrase' && keys -l "pw-$1" && keys Enter && appears "$1 · no profile"
}
program() { pgrep -P "$(mux display-message -p -t t '#{pane_pid}')" -x preft; }

for user in mira jonas; do
    (umask 077 && echo "pw-$user" >"$work/pw")
    "$PREFT" user add $user --home "$work/home" --kdf interactive --quiet --passphrase-file "$work/pw" || exit 1
done
mux -f /dev/null new-session -d -s t -x 100 -y 30 "bash --norc --noprofile" || exit 1
mux set-option -g escape-time 10
keys "PS1='shell> '; cd $PWD; clear" Enter
appears '^shell>' || exit 1

# --- typing, two answers at once, resizing ---------------------------------------------------------
start --user mira --user jonas
must "signing in beside each other" eval 'sign_in mira && keys F6 && sign_in jonas'
keys -l '一二三 👩‍🌾 END| ❤️ END| 🇰🇷 END|'
check "wide characters keep the border in place" eval '
    appears "END\| .*END\|" && [ "$(screen | sed -n "2,28p" | grep -c "│$")" -ge 24 ]'
keys Enter
keys F6
keys -l 'and you?'
keys Enter
check "both are answered" appears '2 people'
for size in 60x20 120x40 20x6 90x24; do
    mux resize-window -t t -x "${size%x*}" -y "${size#*x}"
    sleep 0.2
done
check "the layout is whole after resizing" eval '
    appears "mira · no profile.*jonas · no profile" && [ "$(screen | grep -c "│$")" -ge 18 ]'
keys Escape
keys F6
keys Escape
check "stopping leaves both panes ready" gone '⠋|⠙|⠸|⠴|⠦|⠇'

# --- pastes and bursts -----------------------------------------------------------------------------
mux set-buffer -- "$(printf 'pasted one\npasted two\033[A\003\npasted three')"
mux paste-buffer -p -t t
check "a paste is one draft" appears '> pasted one'
check "its other lines too" appears 'pasted three'
check "it was not sent" eval '[ "$(screen | grep -c "You.*:..")" -le 2 ]'
keys C-u C-u
keys M-u
for ((i = 0; i < 12; i++)); do printf 'burst line %d\r' $i; done >"$work/burst"
mux load-buffer "$work/burst"
mux paste-buffer -r -t t
check "lines typed within a moment are one draft" appears 'burst line 11'
sleep 0.3
check "and were not sent" eval '[ "$(screen | grep -c "You.*:..")" -le 2 ]'

# --- suspension ------------------------------------------------------------------------------------
keys C-z
check "Ctrl-Z returns to the shell" appears 'Stopped'
check "the terminal is the shell's meanwhile" sane
keys "fg" Enter
check "fg draws it again" appears 'mira · no profile.*jonas · no profile'
keys C-z
appears 'Stopped' >/dev/null
keys "bg" Enter
sleep 0.5
check "in the background it stops and writes nothing" eval '! screen | grep -q "no profile"'
mux resize-window -t t -x 100 -y 30
keys "fg" Enter
check "and comes back at the new size" eval 'appears "mira · no profile" && [ "$(screen | head -1 | wc -m)" -gt 95 ]'
kill -STOP "$(program)"
sleep 0.3
kill -CONT "$(program)" # continued in the background: it waits for the foreground
sleep 0.3
keys "fg" Enter
appears "no profile" >/dev/null
keys F1
check "stopped and continued from outside" appears 'Keys · Esc closes'
keys Escape
check "Esc alone is a key" gone 'Keys · Esc closes'

# --- ways out --------------------------------------------------------------------------------------
keys C-q
appears 'shell>$' >/dev/null && keys 'echo left $?' Enter
check "leaving" appears '^left 0'
check "the terminal after leaving" sane
for signal in TERM HUP INT; do
    start --user mira
    sign_in mira >/dev/null
    keys -l 'tell me'
    keys Enter
    kill -$signal "$(program)"
    check "ended by SIG$signal" appears 'left 130'
    check "the terminal after SIG$signal" sane
done
start --user mira
sign_in mira >/dev/null
kill -ABRT "$(program)"
check "a crash" appears 'left 134'
check "the terminal after a crash" sane

# --- beginnings that fail --------------------------------------------------------------------------
keys "clear; $PREFT chat --home $work/home --model /nowhere.gguf; echo left \$?" Enter
check "a missing model is told on the shell's screen" eval 'appears "nowhere" && appears "left [1-9]"'
check "the terminal after it" sane
fails() { # EXPECTED_CODE WORDS: runs in the terminal
    keys "clear; $2; echo left \$?" Enter
    appears "left $1" && ! screen | grep -q "│"
}
chat="$PREFT chat --home $work/home --model $PWD/$model"
check "an unknown terminal type" fails 2 "TERM=nosuchterm $chat"
check "an empty terminal type" fails 2 "TERM= $chat"
check "no terminal type" fails 2 "env -u TERM $chat"
check "input from /dev/null" fails 2 "$chat </dev/null"
check "output to a pipe" fails 0 "$chat | od -c | head; true"
keys "clear; TERM=dumb $chat --user mira" Enter
check "a dumb terminal gets line mode" appears 'Passphrase:'
keys -l 'pw-mira'
keys Enter
check "with its prompt" appears '^mira>'
keys -l 'hello there'
keys Enter
sleep 1
keys C-d
check "and ends with the input" appears 'shell>$'
keys "clear; LANG=C LC_ALL=C $chat --user mira" Enter
check "without UTF-8 the screen is plain ASCII" eval 'appears "^\\+-+" && ! screen | grep -q "[│┌]"'
keys C-q
appears 'shell>$' >/dev/null
exit $bad
