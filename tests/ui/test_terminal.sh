#!/bin/bash
# The real program in a real terminal (tmux): typing, two answers at once, resizing while text
# streams in, pastes, suspension, and every way out. After each the terminal has to be sane.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/ui/tmux.sh

make_users mira jonas
open_terminal 100 30

# --- typing, two answers at once, resizing ---------------------------------------------------------
start --user mira --user jonas
must "signing in beside each other" eval 'sign_in mira && keys F6 && sign_in jonas'
keys -l '一二三 👩‍🌾 END| ❤️ END| 🇰🇷 END|'
bordered() { [ "$(borders 1 30)" -ge "$1" ]; } # ROWS
check "wide characters keep the border in place" eval 'appears "END\| .*END\|" && becomes bordered 26'
check "one question is sent" send '一二三'
keys F6
keys -l 'and you?'
check "the other too, meanwhile" send 'and you?'
check "two are here" appears '2 people'
wide() { [ "$(screen | head -1 | wc -m)" -eq $(($1 + 1)) ]; } # COLS
for size in 60x20 120x40 20x6 90x24; do
    mux resize-window -t t -x "${size%x*}" -y "${size#*x}"
    settled
done
check "the layout is whole after resizing" eval '
    becomes wide 90 && appears "mira · no profile.*jonas · no profile" && becomes bordered 20'
keys Escape
settled
keys F6
keys Escape
check "stopping leaves both panes ready" gone "$NO_ANSWER"
settled

# --- pastes and bursts -----------------------------------------------------------------------------
clear_draft() {
    local i erase=()
    for ((i = 0; i < 14; i++)); do erase+=(C-u BSpace); done
    keys "${erase[@]}"
}
for ((i = 0; i < 12; i++)); do printf 'burst line %d\r' $i; done >"$work/burst"
mux load-buffer "$work/burst"
mux paste-buffer -r -t t
check "lines typed within a moment are one draft" appears 'burst line 11'
for ((i = 0; i < 12; i++)); do keys Up; done # from the empty line behind them to the first
check "and were not sent" appears '> burst line 0'
for ((i = 0; i < 12; i++)); do keys Down; done
clear_draft
gone 'burst line'
mux set-buffer -- "$(printf 'pasted one\npasted two\033[A\003\npasted three')"
mux paste-buffer -p -t t
check "a paste is one draft" appears '> pasted one'
check "its other lines too" appears 'pasted three'
settled
check "it was not sent" shows '> pasted one'
clear_draft
gone 'pasted'
printf 'sent\rtyped ahead' >"$work/burst" # as a slow line delivers keys: the terminal marks pastes
mux load-buffer "$work/burst"
mux paste-buffer -r -t t
# Not the sent line itself: the answer may have moved it up by the time the screen is looked at.
check "then an Enter among keys is one" appears '> typed ahead'
stop_answer >/dev/null
keys C-u
gone 'typed ahead' >/dev/null

# --- suspension ------------------------------------------------------------------------------------
keys -l 'a long answer, please' # it is under way meanwhile
send 'a long answer' >/dev/null
keys C-z
check "Ctrl-Z returns to the shell" appears 'Stopped'
check "the terminal is the shell's meanwhile" sane
keys "fg" Enter
check "fg draws it again" appears 'mira · no profile.*jonas · no profile'
keys C-z
appears 'Stopped' >/dev/null
keys "bg" Enter
settled
check "in the background it stops and writes nothing" hides "no profile"
mux resize-window -t t -x 100 -y 30
keys "fg" Enter
check "and comes back at the new size" eval 'appears "mira · no profile" && becomes wide 100'
kill -STOP "$(program)"
appears 'Stopped' >/dev/null
kill -CONT "$(program)" # continued in the background: it waits for the foreground
settled
keys "clear" Enter # its picture is still there
gone 'no profile' >/dev/null
keys "fg" Enter
check "the answer that was under way is finished or stopped" eval 'appears "mira · no profile" && stop_answer'
keys F1
check "stopped and continued from outside" appears 'Keys and commands'
keys Escape
check "Esc alone is a key" gone 'Keys and commands'

# --- ways out --------------------------------------------------------------------------------------
keys C-q
appears '^shell>$' >/dev/null && keys 'echo left $?' Enter
check "leaving" appears '^left 0'
check "the terminal after leaving" sane
for signal in TERM HUP INT; do
    start --user mira
    sign_in mira >/dev/null
    keys -l 'tell me'
    send 'tell me' >/dev/null # as a draft it would be there next time
    kill -$signal "$(program)"
    check "ended by SIG$signal" appears 'left 130'
    check "the terminal after SIG$signal" sane
done
for signal in ABRT:134 SEGV:139 QUIT:131; do
    # The address sanitizer's own handler prints a report and exits.
    [[ $signal == SEGV* && $PREFT == *san-address* ]] && echo "skip a crash (SIGSEGV): the sanitizer takes it" && continue
    start --user mira
    sign_in mira >/dev/null
    kill -"${signal%:*}" "$(program)"
    check "a crash (SIG${signal%:*})" appears "left ${signal#*:}"
    check "the terminal after it" sane
done

# --- the arrangement of the panes is found again, even after a sudden end --------------------------
start
appears 'Who is here' >/dev/null
keys F2
appears 'Who is here.*Who is here' >/dev/null
keys M-. M-. F3
saved() { grep -q '^below' "$work/home/layout"; } # a second after the last key
check "the arrangement is saved" becomes saved
settled
layout=$(screen | head -27)
kill -KILL "$(program)"
appears 'left 137' >/dev/null
keys 'stty sane; tput rmcup; tput cnorm; clear' Enter
start
as_before() { [ "$(screen | head -27)" = "$layout" ]; }
check "panes are where they were" becomes as_before
keys C-q
appears 'left 0' >/dev/null

# --- beginnings that fail --------------------------------------------------------------------------
keys "clear; $PREFT chat --home $work/home --model /nowhere.gguf; echo left \$?" Enter
check "a missing model is told on the shell's screen" eval 'appears "left [1-9]" && shows "^preft.*nowhere"'
check "the terminal after it" sane
fails() { # EXPECTED_CODE WORDS: runs in the terminal
    fresh
    keys "clear; $2; echo left \$?" Enter
    appears "left $1" && hides "│"
}
chat="$PREFT chat --home $work/home --model $PWD/$model"
check "an unknown terminal type" fails 2 "TERM=nosuchterm $chat"
check "an empty terminal type" fails 2 "TERM= $chat"
check "no terminal type" fails 2 "env -u TERM $chat"
check "input from /dev/null" fails 2 "$chat </dev/null"
fresh
check "output to a pipe: the passphrase is asked on the terminal" eval 'keys "clear; $chat --user mira | cat; echo left \$?" Enter; appears "Passphrase"'
keys -l pw-mira && keys Enter
check "and the messages too" appears '^mira>'
keys C-d
appears 'left 0' >/dev/null
fresh
keys "clear; TERM=dumb $chat --user mira; echo left \$?" Enter
check "a dumb terminal gets line mode" appears 'Passphrase:'
keys -l 'pw-mira'
keys Enter
check "with its prompt" appears '^mira>'
keys -l 'hello there'
keys Enter
keys C-d # taken when the answer is there
check "and ends with the input" appears '^left 0'
fresh
keys "clear; LANG=C LC_ALL=C $chat --user mira" Enter
check "without UTF-8 the screen is plain ASCII" eval 'appears "^\\+-+" && hides "[│┌]"'
keys C-q
appears '^shell>$' >/dev/null

# --- settings that change while it runs ------------------------------------------------------------
printf '[keys]\nquit = Ctrl-X\n' >"$work/conf"
keys "export PREFT_CONFIG=$work/conf" Enter
start --user mira
sign_in mira >/dev/null
printf '[keys]\nquit = Ctrl-Y\nlock = F10\n[chat]\ntheme = pink\n' >"$work/conf"
reload() { keys -l '/reload' && send '/reload' >/dev/null; }
reload
check "settings read again: what is wrong with them" appears 'theme must be one of'
keys Escape
gone 'theme must be one of' >/dev/null
settled # a key right behind ESC would be read as Alt and that key
keys C-x
keys F10
check "the others hold" appears 'locked · mira'
printf '[keys]\nquit = Ctrl-V\n[chat]\ntheme = light\n' >"$work/conf"
keys Enter
sign_in mira >/dev/null
reload
check "settings read again" appears 'Read again: '
keys C-v
check "a key is new" appears 'left 0'
exit $bad
