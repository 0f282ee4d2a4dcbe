#!/bin/bash
# The mouse, pastes, privacy and slow terminals, with the real program in a real terminal (tmux).
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/ui/tmux.sh

make_users mira jonas
open_terminal 250 40
active() { mux display-message -p -t t '#{cursor_x}'; }

# --- the mouse far to the right (more columns than the old reports could say) ----------------------
start --user mira --user jonas
must "signing in beside each other" eval 'sign_in mira && keys F6 && sign_in jonas'
keys F6
mouse 0 230 10 M && mouse 0 230 10 m
keys -l 'typed on the right'
on_the_right() { [ "$(active)" -gt 125 ]; }
check "a click at column 230 gives the keys to the pane there" eval '
    appears "│ > typed on the right" && becomes on_the_right'
keys C-u
seq -f 'line %g of a question' 1 60 >"$work/long" # more than a screen, whatever is answered
mux load-buffer "$work/long"
mux paste-buffer -p -t t
check "a question of many lines" eval 'appears "line 60 of" && keys Enter && gone "> line"'
for i in $(seq 12); do mouse 64 230 10 M; done
check "the wheel reads further up in that pane" appears '↓'
check "and not in the other" eval '[ "$(screen | grep -c "↓")" -eq 1 ]'
keys C-End
edge() { # the column of the line between the panes
    local top left
    top=$(screen | sed -n 1p)
    left=${top%%┬*}
    echo ${#left}
}
before=$(edge)
mouse 0 125 10 M && mouse 32 60 12 M && mouse 32 70 12 M && mouse 0 70 12 m
edge_is() { [ "$(edge)" -eq "$1" ]; }
check "the line between panes is dragged" eval 'becomes edge_is 69 || { echo "at $(edge), before $before"; false; }'
mouse 32 150 12 M
check "and stays when the button is up" eval 'settled; edge_is 69'
keys F9
check "left to the terminal" eval 'appears "F9 brings it back" && becomes flags "#{mouse_any_flag}" 0'
keys F9
check "and taken again" becomes flags '#{mouse_any_flag}#{mouse_sgr_flag}' 11
keys C-q
appears 'left 0' >/dev/null
check "no reports after leaving" sane
mouse 0 230 10 M && mouse 0 230 10 m # what a terminal that still reports would send
keys C-u
check "the shell is usable" sane

# --- a long paste ----------------------------------------------------------------------------------
start --user mira
sign_in mira
seq -f 'line %g of a long text' 1 10000 >"$work/long"
mux load-buffer "$work/long"
worked() { # PID: ticks that its threads computed, whatever else the machine does
    awk '{ print $14 + $15 }' "/proc/$1/stat"
}
before=$(worked "$(program)")
mux paste-buffer -p -t t
check "10,000 pasted lines are one draft" appears 'line 10000 of a long text'
took=$((($(worked "$(program)") - before) * 1000 / $(getconf CLK_TCK)))
check "with little work ($took ms)" [ $took -lt 10000 ]
settled
check "nothing of it was sent" hides 'You .*:'
keys M-u
check "and it is undone in one step" gone 'of a long text'
keys C-q
appears 'left 0' >/dev/null
check "the terminal after it" sane

# --- privacy ---------------------------------------------------------------------------------------
start --user mira
sign_in mira
keys -l 'the seCret of mira' && send 'the seCret of mira' >/dev/null
gone "$NO_ANSWER" >/dev/null
keys -l 'half a seCret' && appears '> half a seCret' >/dev/null
everything() { mux capture-pane -p -t t -S - -E -; }
keys C-l
check "locked: nothing is left on the screen" gone 'seCret'
nowhere() { # neither on the screen nor on the alternate one, nor in what scrolled away
    local text
    text=$(everything && mux capture-pane -p -a -q -t t) && ! grep -q seCret <<<"$text"
}
check "nor in the scrollback" nowhere
keys Enter && sign_in mira >/dev/null
check "unlocked: the conversation and the draft are back" eval 'appears "the seCret of mira" && appears "> half a seCret"'
keys C-z
appears 'Stopped' >/dev/null
check "stopped: nothing is left on any screen" nowhere
keys fg Enter
appears 'seCret' >/dev/null
keys C-q
appears '^shell>$' >/dev/null
check "left: nothing is left on any screen" nowhere
for term in linux screen xterm-16color vt220; do # without alternate screen: linux, vt220
    infocmp "$term" >/dev/null 2>&1 || { echo "skip TERM=$term: this system does not describe it" && continue; }
    mux clear-history -t t
    keys "clear; TERM=$term $PREFT chat --home $work/home --model $PWD/$model --isa ref --user mira; echo left \$?" Enter
    check "TERM=$term" sign_in mira
    keys C-u && keys -l 'a seCret' && send 'a seCret' >/dev/null
    keys C-l
    check "TERM=$term: nothing is left after locking" eval 'appears "locked · mira" && nowhere'
    keys Enter && sign_in mira >/dev/null
    appears 'seCret' >/dev/null
    keys C-q
    appears 'left 0' >/dev/null
    check "TERM=$term: nor after leaving" nowhere
    check "TERM=$term: the terminal after leaving" sane
done

# --- a terminal that takes nothing -----------------------------------------------------------------
# The program writes to a pseudo terminal that nobody reads; it goes on answering, and ends when
# asked to.
if command -v script >/dev/null; then
    keys "clear; script -qfc '$PREFT chat --home $work/home --model $PWD/$model --isa ref --user jonas' /dev/null; echo left \$?" Enter
    appears 'Passphrase' >/dev/null
    settled
    inner=$(pgrep -n -f "[p]reft chat --home $work/home")
    outer=$(pgrep -n -f "^script -qfc .*$work/home")
    kill -STOP "$outer"
    for i in $(seq 40); do # every new size is drawn whole: more than the terminal holds
        stty -F "$(readlink "/proc/$inner/fd/0")" cols $((60 + i)) rows 40
        sleep 0.02
    done
    settled
    before=$(worked "$inner")
    sleep 1
    busy=$(($(worked "$inner") - before))
    check "a terminal that takes nothing is waited for without work ($busy ticks)" [ "$busy" -lt 20 ]
    kill -TERM "$inner"
    ended() { ! kill -0 "$inner" 2>/dev/null || grep -q '^State:.*Z' "/proc/$inner/status"; }
    check "and it ends when it is told to" becomes ended
    kill -CONT "$outer" 2>/dev/null
else
    echo "skip a terminal that takes nothing: script is not installed"
fi
exit $bad
