#!/bin/bash
# Runs test binaries one after the other: tests/run.sh BINARY...
#
#   SY_TEST_TIMEOUT=300   seconds that one binary may take
#   SY_TEST_TALLY=FILE    also appends the closing counts ("passed failed skipped") to FILE
#
# One line a binary; its output only if it failed. A skipped cmocka test, or a binary that exits with 77, counts as
# skipped and its reason (the last line with "skip" in it, or its last line) is shown. The last line is
# "N passed, N failed, N skipped". Fails if a test failed or if nothing ran.
set -u

timeout_s=${SY_TEST_TIMEOUT:-300}
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

skip_reason() {
    local reason
    reason=$(grep -iE 'skip' "$log" | grep -vE '^\[|TEST\(S\)' | tail -n 1)
    echo "${reason:-$(tail -n 1 "$log")}"
}

run_one() {
    local binary=$1 name rc start ms ok bad skip note=""
    name=$(basename "$binary")
    start=$(date +%s%N)
    timeout --kill-after=5 "$timeout_s" "$binary" >"$log" 2>&1 </dev/null
    rc=$?
    ms=$((($(date +%s%N) - start) / 1000000))
    ok=$(grep -cE '^\[ +OK \]' "$log")
    # cmocka repeats what failed or was skipped in its summary; count each name once.
    bad=$(grep -E '^\[  FAILED  \] [A-Za-z_]' "$log" | grep -v 'test(s)' | sort -u | wc -l)
    skip=$(grep -E '^\[  SKIPPED \] [A-Za-z_]' "$log" | grep -v 'test(s)' | sort -u | wc -l)
    if [ "$rc" = 77 ]; then
        ok=0 bad=0 skip=1
    elif [ "$rc" != 0 ] && [ "$bad" = 0 ]; then
        bad=1 # died, timed out, or a sanitizer found something after the tests
    fi
    [ "$skip" -gt 0 ] && note=" ($(skip_reason))"
    [ "$rc" = 124 ] || [ "$rc" = 137 ] && note=" (killed after $timeout_s s)"
    printf '%-24s %4d passed %3d failed %3d skipped %6d.%01d s%s\n' "$name" "$ok" "$bad" "$skip" \
        $((ms / 1000)) $((ms % 1000 / 100)) "$note"
    if [ "$bad" -gt 0 ]; then
        echo "---- $binary exited with $rc; its output:"
        cat "$log"
        echo "----"
    fi
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

for binary in "$@"; do
    run_one "$binary"
done
[ -n "${SY_TEST_TALLY:-}" ] && echo "$passed $failed $skipped" >>"$SY_TEST_TALLY"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ $((passed + skipped)) -gt 0 ]
