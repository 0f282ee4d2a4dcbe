# Lines of check_reference to lines of tests/run.sh: a group is one test, a reason for skipping one
# skip.
/^[0-9]+ passed, [0-9]+ failed/ { ended = 1; next }
/ passed, [0-9]+ failed, / {
    group = $1
    failed = !/ passed, 0 failed, /
    if (!/ 0 passed, 0 failed/) print (failed ? "FAIL " : "ok ") $0
    bad += failed
    next
}
/^  skipped / { sub(/^  skipped /, ""); print "skip " group ": " $0; next }
{ print }
END {
    if (!ended) print "FAIL check_reference did not reach its end"
    exit bad || !ended
}
