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
echo 'startup_message off' >"$work/screenrc"
# Its windows outlive the terminal. (tmux.sh has a function of that name.)
trap 'command screen -S inner -X quit >/dev/null 2>&1; leave_nothing' EXIT
keys "env PS1='inner> ' screen -U -S inner -c $work/screenrc /bin/bash --norc --noprofile" Enter
must "screen runs" appears '^inner>'
keys "clear; echo \$TERM" Enter
check "its terminal" appears '^screen'
start --user mira --user jonas
must "signing in beside each other" eval 'sign_in mira && keys F6 && sign_in jonas'
keys -l '一二三 한국어 é END|'
bordered() { [ "$(borders 1 "$1")" -ge "$2" ]; } # ROWS WANTED
check "wide characters keep the border in place" eval '
    appears "> 一二三 한국어 é END\|" && becomes bordered 28 24'
check "a question is sent" send '一二三'
mux resize-window -t t -x 80 -y 24
check "the layout follows the size" eval '
    appears "mira · no profile.*jonas · no profile" && becomes bordered 24 18'
keys Escape
check "Esc alone is a key" gone "$NO_ANSWER"
keys C-a c # another window of screen, and back
check "another window shows nothing of it" gone 'no profile'
keys C-a C-a
check "and back it is drawn again" appears 'mira · no profile.*jonas · no profile'
keys F1
check "function keys" appears 'Keys and commands'
keys Escape
check "Esc closes it" gone "Keys and commands" # a key right behind ESC would be read as Alt and that key
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
