#!/bin/sh
# The end-to-end tests with servers on the GPU: sh gpu_end_to_end.sh BUILD TESTS [FILTER]; FILTER list prints what there is to run one by
# one. Swaps under load, training's bits under preemption, workers killed in each state, devices that fail. Those that need a link as slow
# as the emulated one stay there.
set -u
tests=$2
filters="swaps_under_load*host two_hundred* a_killed_training* workers_that_die* a_killed_runtime* a_stopped_runtime* idle_workers*
requests_survive_workers* requests_survive_devices* a_stopped_worker*"
set -f # they are patterns, of no file
if [ "${3:-}" = list ]; then
    for filter in $filters; do echo "$filter"; done
    exit 0
fi
SY_TEST_SERVE_DEVICE=${SY_TEST_DEVICE:-cuda:0}
SY_TEST_SERVE_POOL=${SY_TEST_SERVE_POOL:-900M}
SY_BUILD=$1
export SY_TEST_SERVE_DEVICE SY_TEST_SERVE_POOL SY_BUILD
failed=0
bad=$(mktemp)
all=$(mktemp)
trap 'rm -f "$bad" "$all"' EXIT
for filter in ${3:-$filters}; do
    : >"$all"
    : >"$bad"
    echo "== $filter on $SY_TEST_SERVE_DEVICE"
    for test in test_end_to_end test_worker_deaths; do # whichever has it
        { SY_TEST_FILTER=$filter "$tests/$test" 2>&1 || echo "$test" >>"$bad"; } | tee -a "$all"
    done
    [ -s "$bad" ] && failed=1
    if ! grep -qE '^\[ +(OK|FAILED|SKIPPED) +\] [a-z]' "$all"; then
        echo "no test ran: none is called $filter, or it did not start"
        failed=1
    fi
done
exit $failed
