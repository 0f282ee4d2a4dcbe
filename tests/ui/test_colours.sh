#!/bin/bash
# Colours in a real terminal (tmux): the themes, $NO_COLOR, terminals with 16 and 8 colours, the
# console of Linux; the console's font has no braille.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/ui/tmux.sh

make_users mira
open_terminal 80 24

coloured() { mux capture-pane -e -p -t t; }
# Whether the escape sequences of the screen match. 30-37 and 90-97 are colours of letters, 40-47
# of the ground.
has() { coloured | grep -qE $'\033\\[[0-9;]*'"$1"'[;m]'; }
has_not() { # (on a screen that is there)
    local text
    text=$(coloured) && ! grep -qE $'\033\\[[0-9;]*'"$1"'[;m]' <<<"$text"
}
# A key right behind ESC would be read as Alt and that key.
close_it() { keys Escape && gone 'Esc closes'; }
leave() { keys C-q && appears 'left 0'; }
open_with() { # ENVIRONMENT WORDS...
    local environment=$1
    shift
    keys "clear; env $environment $PREFT chat --home $work/home --model $PWD/$model --isa ref --threads 1 --user mira $*; echo left \$?" Enter
    sign_in mira
}

must "the dark theme" open_with TERM=xterm-256color --theme dark
keys C-p
check "it has colours" eval 'appears "Commands" && becomes has "3[0-7]"'
close_it
keys -l '/theme mono' && keys Enter
check "mono has none" eval 'appears "Colours: mono" && becomes has_not "[39][0-7]"'
keys -l '/theme high-contrast' && keys Enter
check "high contrast has a ground of its own" eval 'appears "Colours: high-contrast" && becomes has "40" && becomes has "9[0-7]"'
leave

must "NO_COLOR" open_with NO_COLOR=1
keys F1
check "no colours at all" eval 'appears "Keys and commands" && becomes has_not "[39][0-7]" && becomes has_not "4[0-7]"'
close_it
check "a theme that is asked for by name has its colours" eval '
    keys -l "/theme dark" && keys Enter && appears "Colours: dark" && keys C-p && appears "Commands" && becomes has "3[0-7]"'
close_it
leave

for term in xterm-16color screen linux; do
    infocmp "$term" >/dev/null 2>&1 || { echo "skip TERM=$term: this system does not describe it" && continue; }
    must "TERM=$term" open_with "TERM=$term" --theme dark
    keys -l 'hello 世界' && keys C-p
    check "TERM=$term shows the palette in colours" eval 'appears "Commands" && becomes has "3[0-7]"'
    close_it
    check "TERM=$term keeps its borders" eval '[ "$(borders 1 24)" -ge 18 ]'
    keys C-u
    leave
done
sane || bad=1
exit $bad
