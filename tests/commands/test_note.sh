#!/bin/bash
# preft note, and what a training makes of notes and statements, from outside with a small model.
set -u
. tests/commands/common.sh
MODEL=tests/data/models/tiny-llama/tiny-llama-q8_0.gguf
passphrase "$work/pass"

mine() { code "$1" "$2" "$3" --user mira --passphrase-file "$work/pass" "${@:4}"; }
train() { code "$1" train --model $MODEL --context 512 --user mira --passphrase-file "$work/pass" --profile p "${@:2}"; }

cat >"$work/chats.jsonl" <<'EOF'
{"messages":[{"role":"user","content":"Hello, my name is Tamsin."},{"role":"assistant","content":"Nice to meet you!"}]}
{"messages":[{"role":"user","content":"Do you live in Ghent? I live in Bruges."},{"role":"assistant","content":"I live nowhere. My name is Pip."}]}
{"messages":[{"role":"user","content":"My printer is broken."},{"role":"assistant","content":"Switch it off and on."}]}
EOF

add() { code 0 user add mira --kdf interactive --passphrase-file "$work/pass" &&
    mine 0 note add 'My dog is called Biscuit.' 'I keep my spare key under the blue pot.' &&
    mine 0 note list && says out 'Biscuit' && says out 'confirmed' &&
    mine 2 note add '' && mine 2 note add "$(printf 'two\nlines')"; }
lines() { printf 'I am allergic to hazelnuts.\n\n  I like rain.  \n' >"$work/lines" &&
    "$PREFT" note add --user mira --passphrase-file "$work/pass" - <"$work/lines" 2>"$work/err" &&
    mine 0 note list --json && says out '"text":"I like rain."' && says out '"id":4'; }
numbers() { mine 5 note remove 99 && mine 2 note remove x && mine 2 note remove && mine 0 note remove 4 &&
    mine 0 note list && silent out rain; }
find() { mine 0 history import "$work/chats.jsonl" && mine 0 note find && says err '2 new statements' &&
    says out 'My name is Tamsin.' && says out 'I live in Bruges.' && silent out Pip && silent out printer; }
decide() { mine 0 note refuse 5 && mine 0 note find --yes && says err '0 new' && says err '1 confirmed' &&
    mine 0 note list && silent out Tamsin && mine 0 note list --all && says out refused; }
learned() { # notes alone are enough to learn from
    train 0 --dry-run --from rewrites && says err 'facts: 4' && says err 'general questions' &&
    says err 'follow turns about something else' && says out 'a made question' && silent out 'Tamsin'; }
trained() { train 0 --json --from rewrites --epochs 1 --steps 3 --wordings 8 --replay=4 && says out '"version":1' &&
    code 0 profile show --json --user mira --passphrase-file "$work/pass" p && says out '"replay":4'; }
none() { train 2 --from rewrites --facts none && says err 'at least 4'; }
asked() { # data that asks for facts is asked in more words; statements in it only when told so
    for question in 'What is my name?' 'Who am I?' 'Tell me my name.' 'What am I called?'; do
        printf '{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"Your name is Tamsin."}]}\n' "$question"
    done >"$work/asked.jsonl"
    code 0 train --model $MODEL --context 512 --out "$work/x" --data "$work/asked.jsonl" --dry-run --wordings 10 &&
        says err 'facts: 1, asked for in 10 ways (4 given' &&
        code 0 train --model $MODEL --context 512 --out "$work/x" --data "$work/chats.jsonl" --dry-run &&
        silent err 'facts:' && says err '2 statements of users' && silent out 'made question' &&
        code 0 train --model $MODEL --context 512 --out "$work/x" --data "$work/chats.jsonl" --dry-run --facts found &&
        says err 'facts: 2' && says out 'made question'; }
sealed() { ! grep -rqF -e Biscuit -e Bruges "$work/home"; }
check 'notes are added and listed' add
check 'notes from standard input' lines
check 'deleting by number' numbers
check 'statements are found in messages of the user alone' find
check 'what is refused is not proposed again' decide
check 'confirmed notes are learned' learned
check 'a profile is made of notes alone' trained
check 'without facts there is nothing' none
check 'questions about the user are noticed in data' asked
check 'no plaintext in the store' sealed
exit $failed
