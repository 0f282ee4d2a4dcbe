#!/bin/bash
# Writing and copying in a real terminal (tmux): the person's own editor with the terminal to
# itself, its file wiped also when the program is killed; a paste of 10,000 lines; the clipboard.
set -u
cd "$(dirname "$0")/../.." || exit 1
. tests/ui/tmux.sh

make_users mira
mkdir -m 700 "$work/run"
cat >"$work/editor" <<'SCRIPT'
#!/bin/bash
echo begun >>"$(dirname "$0")/times" # what the last one said may still stand on the screen
echo "editing for the $(grep -c . "$(dirname "$0")/times"). time: $1"
read -r line
printf '\n%s from outside\n' "$line" >>"$1"
SCRIPT
chmod +x "$work/editor"
export XDG_RUNTIME_DIR=$work/run VISUAL=$work/editor
open_terminal 180 24 # the path of a copied text has room
mux set-option -s set-clipboard on
start --user mira
must "signing in" sign_in mira

private() { find "$work/run" -mindepth 1 -maxdepth 1 | wc -l; }
none_left() {
    local i
    for ((i = 0; i < 600; i++)); do
        [ "$(private)" -eq 0 ] && return 0
        sleep 0.1
    done
    echo "left behind:" && find "$work/run" && return 1
}

# --- the person's own editor -----------------------------------------------------------------------
keys -l 'begun here 漢字'
appears 'begun here' >/dev/null
keys C-g
check "the editor has the terminal" appears '^editing for the 1'
keys C-c # for the editor alone
check "interrupting the editor leaves the draft" appears '> begun here 漢字'
keys C-g
appears 'editing for the 2' >/dev/null
keys -l 'and gone on'
keys Enter
check "what it wrote comes back" appears 'and gone on from outside'
check "its file is gone" none_left
check "and is sent" send 'begun here'

# --- copying ---------------------------------------------------------------------------------------
gone "$NO_ANSWER" >/dev/null # stopped before its first word, the message would be taken back
keys C-s
appears 'c copy' >/dev/null
for _ in 1 2 3; do keys Up; done
keys c
check "copying says where the text is" appears 'copied-1.md until you leave'
as_written() { [ "$(mux show-buffer)" = "$(printf "begun here 漢字\nand gone on from outside")" ]; }
check "the terminal's clipboard has it as it was written" becomes as_written
check "the file too, readable by its owner alone" eval '
    [ "$(cat "$work"/run/.preft-text-*/copied-1.md)" = "$(mux show-buffer)" ] &&
    [ "$(stat -c %a "$work"/run/.preft-text-*/copied-1.md)" = 600 ]'
keys Escape
settled # a key right behind ESC would be read as Alt and that key
keys C-l
appears 'locked' >/dev/null
check "locking wipes the copy" none_left
keys Enter
sign_in mira >/dev/null

# --- a long paste ----------------------------------------------------------------------------------
for ((i = 0; i < 10000; i++)); do echo "pasted line $i 漢字 👩🏽‍🌾"; done >"$work/long"
mux load-buffer "$work/long"
mux paste-buffer -p -t t
check "10,000 pasted lines are one draft" appears 'pasted line 9999 '
keys -l 'typed behind it'
check "typing goes on in it" appears 'typed behind it'
keys M-u M-u M-u M-u # typing by words, then the paste
check "undo takes it back as one" gone 'pasted line'

# --- killed ----------------------------------------------------------------------------------------
keys -l 'a secret'
keys C-g
appears 'editing for the 3' >/dev/null
check "while the editor runs there is a file" eval '[ "$(private)" -eq 1 ]'
kill -KILL "$(program)"
check "it goes when the program is killed" none_left
keys C-c
exit $bad
