#!/bin/bash
# Passphrases by prompt, descriptor and file; nowhere else, and never seen by other processes.
set -u
PREFT=${PREFT:-./preft}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export HOME=$dir PREFT_HOME=$dir/home PREFT_CONFIG=
failed=0
ok() { echo "ok $1"; }
bad() { echo "FAIL $1"; failed=1; }
expect() { # NAME WANTED_CODE COMMAND...
    local name=$1 wanted=$2 got
    shift 2
    "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    if [ "$got" = "$wanted" ]; then ok "$name"; else bad "$name: code $got, $(cat "$dir/err")"; fi
}

secret='SECRETMARK of mira'
printf '%s\n' "$secret" >"$dir/pass"
chmod 600 "$dir/pass"

"$PREFT" user add --passphrase-file "$dir/none" 'a/b' 2>"$dir/err"
if grep -q 'user name is refused' "$dir/err" && [ ! -e "$PREFT_HOME" ]; then
    ok 'a name is refused before a passphrase is asked for, and makes no store'
else
    bad "a bad name: $(cat "$dir/err")"
fi
expect 'a passphrase from a private file' 0 \
    "$PREFT" user add --kdf interactive --passphrase-file "$dir/pass" mira
"$PREFT" user add --passphrase-file "$dir/none" MIRA 2>"$dir/err"
grep -q 'already a user' "$dir/err" && ok 'and so is one that is taken' || bad "$(cat "$dir/err")"
expect 'a passphrase from a descriptor' 0 \
    "$PREFT" profile list --user mira --passphrase-fd 7 7<"$dir/pass"
expect 'a wrong passphrase' 4 "$PREFT" profile list --user mira --passphrase-fd 7 7<<<'wrong'
expect 'an unknown user' 5 "$PREFT" profile list --user nobody --passphrase-fd 7 7<<<'x'
expect 'an empty descriptor' 2 "$PREFT" profile list --user mira --passphrase-fd 7 7</dev/null
expect 'a closed descriptor' 2 "$PREFT" profile list --user mira --passphrase-fd 9
chmod 644 "$dir/pass"
expect 'a file that others can read is refused' 3 \
    "$PREFT" profile list --user mira --passphrase-file "$dir/pass"
chmod 600 "$dir/pass"
mkfifo "$dir/fifo"
expect 'a FIFO is refused and does not block' 3 \
    timeout 60 "$PREFT" profile list --user mira --passphrase-file "$dir/fifo"
expect 'no terminal and no option' 2 setsid -w "$PREFT" profile list --user mira

# no option of any command takes the secret itself
for option in --passphrase --password --pass --secret; do
    for command in 'user add' 'user passwd' 'profile list' 'history list' 'doctor' 'backup'; do
        # shellcheck disable=SC2086
        "$PREFT" $command $option="$secret" x >"$dir/out" 2>&1
        [ $? = 2 ] || bad "$command $option is accepted"
        grep -q SECRETMARK "$dir/out" && bad "$command $option prints the secret"
    done
done
ok 'no option takes the secret'

# /proc while a sign-in runs
for how in file descriptor; do
    seen=0 looks=0 cores=''
    for _ in $(seq 50); do # again when it had ended before anybody looked
        if [ $how = file ]; then
            "$PREFT" profile list --user mira --passphrase-file "$dir/pass" >/dev/null 2>&1 &
        else
            "$PREFT" profile list --user mira --passphrase-fd 0 <"$dir/pass" >/dev/null 2>&1 &
        fi
        pid=$!
        while kill -0 $pid 2>/dev/null; do
            # environ is closed to all but root, since the process can't be traced
            cat /proc/$pid/environ >"$dir/look" 2>/dev/null
            cat /proc/$pid/cmdline >>"$dir/look" 2>/dev/null && looks=$((looks + 1))
            grep -q SECRETMARK "$dir/look" 2>/dev/null && seen=1
            limit=$(awk '/Max core file size/ {print $5}' /proc/$pid/limits 2>/dev/null)
            [ -n "$limit" ] && cores=$limit
        done
        wait $pid
        [ $looks -eq 0 ] || [ "$cores" != 0 ] || break
    done
    if [ $seen = 0 ] && [ $looks -gt 0 ]; then
        ok "by $how: not in cmdline or environ ($looks looks)"
    else
        bad "by $how: seen in cmdline or environ ($looks looks)"
    fi
    if [ "$cores" = 0 ]; then ok "by $how: no core file possible"; else bad "core limit $cores"; fi
done

# a crash in the middle of a sign-in, while the passphrase is read, leaves no core file
mkfifo "$dir/slow"
(
    cd "$dir" && ulimit -c unlimited 2>/dev/null
    "$PREFT" profile list --user mira --passphrase-fd 7 7<>"$dir/slow" >/dev/null 2>&1 &
    pid=$!
    asleep=0
    for _ in $(seq 1200); do # it reads once it sleeps all the time
        read -r name state < <(awk '{print $2, $3}' "/proc/$pid/stat" 2>/dev/null)
        if [ "$name $state" = '(preft) S' ]; then asleep=$((asleep + 1)); else asleep=0; fi
        [ $asleep -lt 5 ] || break
        sleep 0.05
    done
    echo $asleep >"$dir/asleep"
    kill -SEGV $pid 2>/dev/null
    wait $pid
) 2>/dev/null
[ "$(cat "$dir/asleep")" = 5 ] || bad 'the passphrase was not waited for'
if ls "$dir"/core* >/dev/null 2>&1; then bad 'a core file was written'; else ok 'no core file'; fi

# the prompt: without echo, and the terminal is as before afterwards
if command -v script >/dev/null; then
    cat >"$dir/session" <<END
stty echo
"$PREFT" profile list --user mira && echo LISTED
stty -a | grep -q ' echo ' && echo ECHOES
echo ENDED
END
    # typed when it is asked for, since what comes earlier is thrown away
    answer() {
        for _ in $(seq 600); do grep -q 'Passphrase of' "$dir/typed" && break; sleep 0.1; done
        sleep 0.3
        printf '%s\n' "$secret"
        for _ in $(seq 600); do grep -q ENDED "$dir/typed" && break; sleep 0.1; done
    }
    : >"$dir/typed"
    answer | script -qefc "sh $dir/session" /dev/null >"$dir/typed" 2>&1
    if grep -q LISTED "$dir/typed" && ! grep -q SECRETMARK "$dir/typed"; then
        ok 'the prompt takes the passphrase and does not show it'
    else
        bad "the prompt: $(cat "$dir/typed")"
    fi
    if grep -q ECHOES "$dir/typed"; then ok 'the terminal echoes again'; else bad 'echo stays off'; fi
else
    echo 'skip the prompt: no script(1)'
fi

# nothing in the log, whose file is private
umask 000
"$PREFT" --log "$dir/log" history list --user mira --passphrase-file "$dir/pass" >/dev/null 2>&1
umask 022
if [ -e "$dir/log" ]; then
    [ "$(stat -c %a "$dir/log")" = 600 ] && ok 'the log is private' || bad 'mode of the log'
    grep -q SECRETMARK "$dir/log" && bad 'the log has the passphrase'
else
    bad 'no log was written'
fi

# the folder holds no name of a profile, no text, and only private files
"$PREFT" profile create --user mira --passphrase-file "$dir/pass" --system SYSTEMMARK PROFILEMARK \
    2>/dev/null
echo '{"messages":[{"role":"user","content":"MESSAGEMARK"}]}' |
    "$PREFT" history import --user mira --passphrase-file "$dir/pass" - 2>/dev/null
"$PREFT" history search --user mira --passphrase-file "$dir/pass" messagemark | grep -q MESSAGEMARK &&
    ok 'what was imported is found' || bad 'search'
grep -rqE 'PROFILEMARK|MESSAGEMARK|SYSTEMMARK|SECRETMARK' "$PREFT_HOME" &&
    bad 'plain text in the data folder' || ok 'no plain text in the data folder'
[ -z "$(find "$PREFT_HOME" -perm /077)" ] && ok 'folder and files are private' ||
    bad 'modes in the data folder'

# the other way out
recovery=$("$PREFT" user recovery mira --passphrase-file "$dir/pass" 2>/dev/null)
printf '%s\nnew passphrase\n' "$recovery" |
    "$PREFT" user passwd --forgotten --passphrase-fd 0 mira 2>/dev/null
expect 'a recovery key sets a new passphrase' 0 \
    "$PREFT" profile list --user mira --passphrase-fd 0 <<<'new passphrase'
expect 'the old passphrase is void' 4 \
    "$PREFT" profile list --user mira --passphrase-file "$dir/pass"

# removing a user needs the name, typed again
expect 'another name changes nothing' 2 "$PREFT" user remove mira --confirm jonas
expect 'without a terminal the name is needed' 2 setsid -w "$PREFT" user remove mira
expect 'and the passphrase still works' 0 \
    "$PREFT" profile list --user mira --passphrase-fd 0 <<<'new passphrase'
expect 'the right name removes' 0 "$PREFT" user remove mira --confirm mira
[ -z "$("$PREFT" user list)" ] && ok 'nobody is left' || bad 'user list'

# memory that can't be locked: one warning, and it works
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    # a folder that another account can reach
    open=$(mktemp -d /tmp/preft-test-XXXXXX)
    trap 'rm -rf "$dir" "$open"' EXIT
    mkdir "$open/nobody" && chmod 711 "$open" && chown 65534:65534 "$open/nobody"
    cp "$PREFT" "$open/preft" && chmod 755 "$open/preft"
    unlocked=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all
        prlimit --memlock=0 "$open/preft" --home "$open/nobody/home")
    "${unlocked[@]}" user add --kdf interactive --passphrase-fd 0 eva <<<'a passphrase' 2>"$dir/err"
    if grep -q __asan_init "$PREFT"; then
        echo 'skip one warning without lockable memory: the address sanitizer never locks any'
    elif [ "$(grep -c 'memory be locked' "$dir/err")" = 1 ]; then
        ok 'one warning without lockable memory'
    else
        bad "lockable memory: $(cat "$dir/err")"
    fi
    [ "$("${unlocked[@]}" user list)" = eva ] && ok 'and it works' || bad 'without lockable memory'
else
    echo 'skip memory that cannot be locked: not root, or no setpriv(1)'
fi
exit $failed
