#!/bin/sh
# The tests that need a GPU: sh gpu_check.sh BUILD TESTS, the folders of the program and of the test binaries. Started by
# `make gpu-check`, and by run.sh in what `make dist` made; needs no network, no compiler and no git.
#
#   PART="device engine"    these parts only: device, engine, train, models, end-to-end, sanitizer; all of them unless said
#   SY_TEST_DEVICE=cuda:0   the GPU
#   SY_STEP_SECONDS=900     what one step may take
#   SY_CHECK_SECONDS=540    what all may take, unless said as long as they need: what had no time left is counted as not run
#   SY_CHECK_LOG=FILE       the output of every step, as they end
#
# One line a step when it ends, with its seconds; its output only if it failed. The last line counts, also when it is interrupted.
# Exit status 1 if a step failed or had no time, or if none passed. Without a GPU it fails at once and says why.
set -u
build=$1 tests=$2
device=${SY_TEST_DEVICE:-cuda:0}
here=$(dirname "$0")
all="device engine train models end-to-end sanitizer"
parts=${PART:-$all}
for part in $parts; do
    case " $all " in *" $part "*) ;; *)
        echo "gpu-check: there is no part $part; there are $all" >&2
        exit 2
        ;;
    esac
done
for place in "$build" "$build/../lib"; do
    [ -e "$place/libswitchyard-cuda.so" ] && : "${SY_CUDA_PLUGIN:=$(cd "$place" && pwd)/libswitchyard-cuda.so}"
done
if [ -z "${SY_CUDA_PLUGIN:-}" ]; then
    echo "gpu-check: no libswitchyard-cuda.so in $build: build it with make CUDA=1" >&2
    exit 1
fi
SY_TEST_DEVICE=$device
SY_BINARY=$build/switchyard
SY_BUILD=$build
export SY_CUDA_PLUGIN SY_TEST_DEVICE SY_BINARY SY_BUILD

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! timeout 120 "$tests/test_cuda_plugin" --open "$device" >"$log" 2>&1 </dev/null; then
    echo "gpu-check: no GPU to test on: $(tail -n 1 "$log")" >&2
    exit 1
fi
echo "gpu-check: $(tail -n 1 "$log")"

passed=0 failed=0 skipped=0 late=0 child=
begin=$(date +%s)

count() {
    echo "$passed passed, $failed failed, $skipped skipped$([ "$late" = 0 ] || echo ", $late not run for want of time")"
}

interrupted() {
    [ -n "$child" ] && kill "$child" 2>/dev/null
    echo "gpu-check: interrupted"
    count
    exit 1
}
trap interrupted INT TERM

skip() {
    skipped=$((skipped + 1))
    echo "skip  $1: $2"
}

# step NAME COMMAND...: 77 is a skip, whose last line says why. NAME begins with its part's.
step() {
    name=$1
    shift
    seconds=${SY_STEP_SECONDS:-900}
    now=$(date +%s)
    if [ -n "${SY_CHECK_SECONDS:-}" ]; then
        left=$((begin + SY_CHECK_SECONDS - now))
        if [ "$left" -lt 1 ]; then
            late=$((late + 1))
            echo "late  $name: the ${SY_CHECK_SECONDS} s are over"
            return
        fi
        [ "$left" -lt "$seconds" ] && seconds=$left
    fi
    timeout --kill-after=5 "$seconds" "$@" >"$log" 2>&1 </dev/null &
    child=$!
    wait "$child"
    rc=$?
    child=
    took="$(($(date +%s) - now)) s"
    if [ -n "${SY_CHECK_LOG:-}" ]; then
        {
            echo "==== $name: exit $rc after $took"
            cat "$log"
        } >>"$SY_CHECK_LOG"
    fi
    if [ $rc = 0 ]; then
        passed=$((passed + 1))
        echo "ok    $name ($took)"
    elif [ $rc = 77 ]; then
        skip "$name" "$(tail -n 1 "$log")"
    else
        failed=$((failed + 1))
        why="exit $rc"
        [ $rc = 124 ] || [ $rc = 137 ] && why="killed after $seconds s"
        echo "FAIL  $name ($why)"
        cat "$log"
    fi
}

wanted() {
    case " $parts " in *" $1 "*) return 0 ;; esac
    return 1
}

# run_tests PART PATTERN: each is a test that skips itself (77) where there is no GPU.
run_tests() {
    found=0
    for test in "$tests"/$2; do
        case $test in *.d | *.o) continue ;; esac
        [ -x "$test" ] || continue
        found=1
        step "$1: $(basename "$test")" "$test"
    done
    if [ $found = 0 ]; then
        failed=$((failed + 1))
        echo "FAIL  $1: no $2 in $tests"
    fi
}

# Where it lies if not on the PATH.
find_sanitizer() {
    for place in $(command -v compute-sanitizer) "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
        "${CUDA_HOME:-/usr/local/cuda}"/compute-sanitizer/compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer \
        /opt/nvidia/*/compute-sanitizer /opt/nvidia/*/*/compute-sanitizer; do
        if [ -f "$place" ] && [ -x "$place" ]; then
            echo "$place"
            return
        fi
    done
}

if wanted device; then
    step "device: suite, pool by file descriptor" env SY_CUDA_POOL=fd "$tests/test_device"
    step "device: suite, pool with a keeper" env SY_CUDA_POOL=ipc "$tests/test_device"
    step "device: suite, pool at another address" env SY_CUDA_POOL_BASE=0x300000000000 "$tests/test_device"
    run_tests device test_gpu_device
    run_tests device test_gpu_slices
fi
if wanted engine; then
    run_tests engine 'test_gpu_engine*'
    step "engine: cuDNN wherever it agrees with our kernels" env SY_CUDA_PREFER_CUDNN=1 "$tests/test_gpu_engine_candidates"
    cases=
    for place in "$tests/onnx_cases" /usr/share/libonnx-testdata/data; do [ -z "$cases" ] && [ -d "$place/node" ] && cases=$place; done
    if [ -n "$cases" ]; then
        step "engine: ONNX's own test data" "$tests/gpu_onnx_suite" --together "$cases"
    else
        skip "engine: ONNX's own test data" "it is neither in $tests/onnx_cases nor in /usr/share/libonnx-testdata"
    fi
fi
if wanted train; then
    run_tests train 'test_gpu_train*'
    run_tests train test_gpu_ranks
fi
if wanted models; then run_tests models test_gpu_models; fi
if wanted end-to-end; then
    set -f # what is listed are patterns of tests' names
    for filter in $(sh "$here/gpu_end_to_end.sh" "$build" "$tests" list); do
        step "end-to-end: $filter" sh "$here/gpu_end_to_end.sh" "$build" "$tests" "$filter"
    done
    set +f
fi
if wanted sanitizer; then
    sanitizer=$(find_sanitizer)
    if [ -z "$sanitizer" ]; then
        skip "sanitizer: memory and race checkers" "no compute-sanitizer on the PATH, nor in ${CUDA_HOME:-/usr/local/cuda} or /opt/nvidia"
    elif ! timeout 120 "$sanitizer" --error-exitcode 1 --report-api-errors no "$tests/test_cuda_plugin" --open "$device" >"$log" 2>&1 </dev/null; then
        skip "sanitizer: memory and race checkers" "$sanitizer does not run here: $(tail -n 1 "$log")"
    else
        # What CUDA's calls answer, our own code looks at: tests provoke failures. The suite starts itself again as a second process; the
        # checker follows only the first.
        step "sanitizer: memcheck, device suite" "$sanitizer" --launch-timeout 120 --error-exitcode 1 --report-api-errors no \
            --target-processes application-only "$tests/test_device"
        # The operator table: what the engine's tests compute, each kernel's reads and writes checked; races between a block's threads.
        for tool in memcheck racecheck; do
            for test in "$tests"/test_gpu_engine* "$tests"/test_gpu_trainer "$tests"/test_gpu_train_gradients*; do
                case $test in *.d | *.o) continue ;; esac
                [ -x "$test" ] && step "sanitizer: $tool, $(basename "$test")" "$sanitizer" --tool $tool --launch-timeout 120 --error-exitcode 1 \
                    --report-api-errors no "$test"
            done
        done
    fi
fi
count
[ "$failed" = 0 ] && [ "$late" = 0 ] && [ "$passed" -gt 0 ]
