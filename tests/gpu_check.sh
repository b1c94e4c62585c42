#!/bin/sh
# The tests that need a GPU: sh gpu_check.sh BUILD TESTS, the folders of the program and of the test binaries. Started by
# `make gpu-check`, and by run.sh in what `make dist` made; needs no network, no compiler and no git.
#
#   SY_TEST_DEVICE=cuda:0   the GPU
#
# One line a step, its output only if it failed; the last line counts. Without a GPU it fails at once and says why.
set -u
build=$1 tests=$2
device=${SY_TEST_DEVICE:-cuda:0}
here=$(dirname "$0")
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
if ! "$tests/test_cuda_plugin" --open "$device" >"$log" 2>&1; then
    echo "gpu-check: no GPU to test on: $(tail -n 1 "$log")" >&2
    exit 1
fi
echo "gpu-check: $(tail -n 1 "$log")"

passed=0 failed=0 skipped=0

# step NAME COMMAND...: 77 is a skip, whose last line says why.
step() {
    name=$1
    shift
    timeout "${SY_STEP_SECONDS:-900}" "$@" >"$log" 2>&1 </dev/null
    rc=$?
    if [ $rc = 0 ]; then
        passed=$((passed + 1))
        echo "ok    $name"
    elif [ $rc = 77 ]; then
        skipped=$((skipped + 1))
        echo "skip  $name: $(tail -n 1 "$log")"
    else
        failed=$((failed + 1))
        echo "FAIL  $name (exit $rc)"
        cat "$log"
    fi
}

step "device suite, pool by file descriptor" env SY_CUDA_POOL=fd "$tests/test_device"
step "device suite, pool with a keeper" env SY_CUDA_POOL=ipc "$tests/test_device"
step "device suite, pool at another address" env SY_CUDA_POOL_BASE=0x300000000000 "$tests/test_device"
# Each test_gpu_NAME is a test that skips itself (77) where there is no GPU; each gpu_NAME.sh takes the same two folders.
for test in "$tests"/test_gpu_*; do
    case $test in *.d | *.o) continue ;; esac
    [ -x "$test" ] && step "$(basename "$test")" "$test"
done
for script in "$here"/gpu_*.sh; do
    case $script in */gpu_check.sh) continue ;; esac
    [ -e "$script" ] && step "$(basename "$script")" sh "$script" "$build" "$tests"
done
if command -v compute-sanitizer >/dev/null; then
    # The suite starts itself again as a second process; the checker follows only the first.
    step "memory checker on the device suite" \
        compute-sanitizer --error-exitcode 1 --target-processes application-only "$tests/test_device"
    # The operator table: what the engine's tests compute, each kernel's reads and writes checked; races between a block's threads.
    for test in "$tests"/test_gpu_engine* "$tests"/test_gpu_trainer "$tests"/test_gpu_train_gradients; do
        case $test in *.d | *.o) continue ;; esac
        name=$(basename "$test")
        step "memory checker on $name" compute-sanitizer --error-exitcode 1 "$test"
        step "race checker on $name" compute-sanitizer --tool racecheck --error-exitcode 1 "$test"
    done
else
    echo "skip  memory checker: no compute-sanitizer on the PATH"
    skipped=$((skipped + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
