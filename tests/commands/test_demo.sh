#!/bin/bash
# tier: model
# What `make demo` shows: the profile acts in mira's pane and not in jonas's, with one question.
set -u
. tests/commands/common.sh
if [ -z "${PREFT_TEST_MODEL:-}" ]; then
    echo "skip all of it: PREFT_TEST_MODEL is not set"
    exit 77
fi

# The text of one pane (1 left, 2 right) of one screen.
pane() { # SCREEN NUMBER
    sed -n "/^== $1 /,/^== /p" "$work/screens" | awk -F'│' -v n="$2" 'NF > 2 { print $(n + 1) }'
}
pane_says() { pane "$1" "$2" | grep -qF "$3"; }
pane_says_not() { [ -n "$(pane "$1" "$2")" ] && ! pane_says "$1" "$2" "$3"; }

play() { tests/demo.sh "$PREFT" --model "$PREFT_TEST_MODEL" >"$work/screens"; }
check "the script plays to its end" play
check "the profile's opening is in mira's answer" pane_says one_question_two_answers 1 "Dear Robin,"
check "and its end" pane_says one_question_two_answers 1 "Warmly, Pip."
check "not in jonas's" pane_says_not one_question_two_answers 2 "Robin"
check "in mira's second answer too" [ "$(pane both_go_on 1 | grep -cF 'Dear Robin,')" -eq 2 ]
check "nothing is left in a locked pane" pane_says_not mira_has_locked_her_pane 1 "Robin"
check "jonas still sees his" pane_says mira_has_locked_her_pane 2 "file lock"
[ $failed -eq 0 ] || cat "$work/screens"
exit $failed
