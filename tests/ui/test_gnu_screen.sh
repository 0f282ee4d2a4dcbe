#!/bin/bash
# The real program inside GNU screen (itself in tmux, which shows what a person would see): typing
# wide characters, resizing, switching windows, locking, leaving.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/ui/tmux.sh
if ! command -v screen >/dev/null; then
    echo "skip all of it: GNU screen is not installed"
    exit 77
fi
export SCREENDIR=$work/screens
(umask 077 && mkdir "$SCREENDIR")
make_users mira jonas
open_terminal 100 30
# tmux.sh has a function of that name
keys "command screen -U -c /dev/null /bin/bash --norc --noprofile" Enter
sleep 0.5
keys Enter
keys "PS1='inner> '; clear; echo \$TERM" Enter
must "screen runs" appears '^screen'
start --user mira --user jonas
must "signing in beside each other" eval 'sign_in mira && keys F6 && sign_in jonas'
keys -l '一二三 한국어 é END|'
check "wide characters keep the border in place" eval '
    appears "> 一二三 한국어 é END\|" && [ "$(screen | sed -n "2,28p" | grep -c "│$")" -ge 24 ]'
keys Enter
check "an answer" appears '⠋|⠙|⠸|⠴|⠦|⠇|You'
mux resize-window -t t -x 80 -y 24
check "the layout follows the size" eval '
    appears "mira · no profile.*jonas · no profile" && settled && [ "$(screen | head -24 | grep -c "│$")" -ge 18 ]'
keys Escape
check "Esc alone is a key" gone '⠋|⠙|⠸|⠴|⠦|⠇'
keys C-a c # another window of screen, and back
check "another window shows nothing of it" gone 'no profile'
keys C-a C-a
check "and back it is drawn again" appears 'mira · no profile.*jonas · no profile'
keys F1
check "function keys" appears 'Keys and commands'
keys Escape
keys M-z
check "Alt keys" appears '2 of 2'
keys C-l
check "locked" appears 'locked · jonas'
check "nothing of the chat stays" gone 'END\|'
keys C-q
check "leaving" appears 'left 0'
check "the terminal after leaving" eval 'keys "stty -a" Enter; appears " icanon.* echo |echo .*icanon"'
keys "exit" Enter
exit $bad
