#!/bin/bash
# Runs test binaries, several at a time: tests/run.sh BINARY...
#
#   SY_TEST_JOBS=2        so many at a time; one a core unless said
#   SY_TEST_TIMEOUT=900   seconds that one binary may take: it hangs, whatever else the machine does
#   SY_TEST_TALLY=FILE    also appends the closing counts ("passed failed skipped") to FILE
#
# One line a binary when it ends; its output only if it failed. A skipped cmocka test, or a binary that exits with 77, counts as
# skipped and its reason (the last line with "skip" in it, or its last line) is shown. The last line is
# "N passed, N failed, N skipped". Fails if a test failed or if nothing ran. Those that take longest begin first.
set -u

timeout_s=${SY_TEST_TIMEOUT:-900}
jobs=${SY_TEST_JOBS:-$(env -u OMP_NUM_THREADS nproc)} # nproc counts what OMP_NUM_THREADS says
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM
# Threads of two programs on the same cores: who waits must not spin. All threads of a program are needed, or sums change their order.
[ "$jobs" -gt 1 ] && export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

# They wait for slow links, killed workers, or compute much.
longest="page_check.py test_end_to_end test_many_jobs test_interrupts test_train_kills test_cli
fuzz_edits fuzz_engine test_mutated_models test_bad_graphs test_bad_jobs_served test_bad_jobs test_recurrence test_engine_precision fake_cuda_engine_precision"

# They compute next to nothing: one after another beside the others, so that no core idles for them.
waiting="test_core gpu_bench_check.py metrics_check.py test_model_memory test_core_jobs test_unload"

skip_reason() {
    local reason
    reason=$(grep -iE 'skip' "$1" | grep -vE '^\[|TEST\(S\)' | tail -n 1)
    echo "${reason:-$(tail -n 1 "$1")}"
}

# Writes its counts to $folder/NAME.tally; says all that it has to say at once, so that two that end together do not mix.
run_one() {
    local binary=$1 name rc start ms ok bad skip note="" log
    name=$(basename "$binary")
    log=$folder/$name.log
    start=$(date +%s%N)
    timeout --kill-after=5 "$timeout_s" "$binary" >"$log" 2>&1 </dev/null &
    trap "kill $!; exit 143" TERM
    wait $!
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
    [ "$skip" -gt 0 ] && note=" ($(skip_reason "$log"))"
    [ "$rc" = 124 ] || [ "$rc" = 137 ] && note=" (killed after $timeout_s s)"
    {
        printf '%-24s %4d passed %3d failed %3d skipped %6d.%01d s%s\n' "$name" "$ok" "$bad" "$skip" \
            $((ms / 1000)) $((ms % 1000 / 100)) "$note"
        if [ "$bad" -gt 0 ]; then
            echo "---- $binary exited with $rc; its output:"
            cat "$log"
            echo "----"
        fi
    } >"$folder/$name.said"
    flock "$folder" cat "$folder/$name.said"
    echo "$ok $bad $skip" >"$folder/$name.tally"
}

# The binaries with one of these names, in the names' order.
named() {
    local name binary
    for name in $1; do
        for binary in "${@:2}"; do
            [ "$(basename "$binary")" = "$name" ] && echo "$binary"
        done
    done
}
mapfile -t beside < <(named "$waiting" "$@")
mapfile -t ordered < <(named "$longest" "$@")
for binary in "$@"; do
    [[ " ${ordered[*]-} ${beside[*]-} " == *" $binary "* ]] || ordered+=("$binary")
done

for binary in ${beside[@]+"${beside[@]}"}; do
    run_one "$binary"
done &
waiter=$!
running=0
for binary in "${ordered[@]}"; do
    while [ "$running" -ge "$jobs" ]; do
        wait -n -p ended
        [ "$ended" = "$waiter" ] || running=$((running - 1))
    done
    run_one "$binary" &
    running=$((running + 1))
done
wait

# A binary without a tally was not run to its end, whatever the reason.
read -r passed failed skipped < <(for binary in "$@"; do
    cat "$folder/$(basename "$binary").tally" 2>/dev/null || echo "0 1 0"
done | awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
[ -n "${SY_TEST_TALLY:-}" ] && echo "$passed $failed $skipped" >>"$SY_TEST_TALLY"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ $((passed + skipped)) -gt 0 ]
