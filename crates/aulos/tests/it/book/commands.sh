#!/usr/bin/env bash
# Stands for `aulos` and `snapclient` in the blocks of the documents. Commands that call a server call
# that of the page. Commands that run until they are stopped are stopped when they have begun, and
# have to end well; a server runs until the page ends or starts another one.
set -uo pipefail
log=$BOOK_FOLDER/server

# Waits for a file with the exit code of the program.
stop_server() {
    [ -e "$log.pid" ] || return 0
    kill -TERM "$(cat "$log.pid")" 2>/dev/null
    # A block that took too long was killed with its server, which then leaves no code.
    until [ -e "$log.exit" ] || ! kill -0 "$(cat "$log.pid")" 2>/dev/null; do sleep 0.02; done
    for _ in {1..100}; do [ -e "$log.exit" ] || sleep 0.02; done
    rm "$log.pid"
    [ "$(cat "$log.exit" 2>/dev/null)" = 0 ] || { cat "$log.out" "$log.err" && return 1; }
}

start_server() {
    stop_server || exit
    rm -f "$log".*
    (
        "$BOOK_AULOS" "$@" --set "listen.address=$BOOK_ADDRESS" >"$log.out" 2>"$log.err" &
        echo $! >"$log.pid"
        wait $!
        echo $? >"$log.end" && mv "$log.end" "$log.exit"
    ) </dev/null >/dev/null 2>&1 &
    # It prints its stations when its ports are open.
    until grep -q '^  station' "$log.out" 2>/dev/null; do
        [ ! -e "$log.exit" ] || { cat "$log.out" "$log.err" && exit "$(cat "$log.exit")"; }
        sleep 0.02
    done
    # The output once, for a pipe after it.
    cat "$log.out" && cat "$log.err" >&2
}

# until_begun CONDITION PROGRAM ARGUMENT...: runs it until the condition holds, then interrupts it.
until_begun() {
    local condition=$1 ok=0 pid
    out=$(mktemp "$BOOK_FOLDER/tmp/out.XXXXXX") err=$out.err
    shift
    "$@" >"$out" 2>"$err" &
    pid=$!
    until $condition; do
        kill -0 $pid 2>/dev/null || break
        sleep 0.02
    done
    kill -INT $pid 2>/dev/null
    wait $pid || ok=$?
    cat "$out" && cat "$err" >&2
    # 130: interrupted, which is how it was meant to end.
    [ $ok = 130 ] && $condition || return $ok
}

has_printed() { [ -s "$out" ] || [ -s "$err" ]; }
has_line() { [ -s "$out" ]; }
has_recorded() { [ -s "$recorded" ]; }
has_stream() { grep -q 'the stream is' "$err" && { [ -z "$json" ] || [ -s "$out" ]; }; }
is_connected() { grep -q 'ServerSettings' "$out" "$err"; }

words=" $* "
if [ "${0##*/}" = snapclient ]; then
    export PATH=$BOOK_PATH
    until_begun is_connected snapclient --logsink stdout --logfilter '*:debug' \
        --player file:filename=/dev/null "$@"
    exit
fi
case ${1-} in
    stop-server) stop_server ;;
    # It opens all addresses, as snapserver does.
    convert) "$BOOK_AULOS" "$@" | sed "s/\[::\]/$BOOK_ADDRESS/g" ;;
    serve) start_server "$@" ;;
    rpc | status | client | group | station | reload | announce)
        [[ $words == *" --server "* ]] || set -- "$@" --server "$BOOK_ADDRESS"
        exec "$BOOK_AULOS" "$@"
        ;;
    play)
        [[ $words != *" --list-outputs "* ]] || exec "$BOOK_AULOS" "$@"
        [[ $words == *"://"* ]] || set -- "$@" "tcp://$BOOK_ADDRESS"
        json=
        [[ $words != *" --json "* ]] || json=yes
        until_begun has_stream "$BOOK_AULOS" "$@"
        ;;
    record)
        recorded=$3
        until_begun has_recorded "$BOOK_AULOS" "$@"
        ;;
    meter) until_begun has_line "$BOOK_AULOS" "$@" ;;
    relay) until_begun has_printed "$BOOK_AULOS" "$@" ;;
    *) exec "$BOOK_AULOS" "$@" ;;
esac
