#!/bin/bash
# Checks what a script can check of how this code is written: format, folders, names, lengths, includes, clang-tidy.
# Prints each offence as "FILE:LINE: what" and ends with "lint: N offences"; fails if N > 0.
#   LINT_TIDY=0 leaves out clang-tidy.
set -u
cd "$(dirname "$0")/../.."

offences=$(mktemp)
trap 'rm -f "$offences"' EXIT
mapfile -t sources < <(git ls-files '*.c' '*.h' '*.cc')
mapfile -t headers < <(git ls-files '*.h')

offence() {
    echo "$1" | tee -a "$offences"
}

# Runs a check that prints its offences. One that fails without any is an offence itself: it has checked nothing.
run_check() {
    local out status
    out=$("$@" </dev/null)
    status=$?
    [ -z "$out" ] || echo "$out" | tee -a "$offences"
    [ "$status" = 0 ] || [ -n "$out" ] || offence "tests/lint/lint.sh:1: '${*:1:2}' failed with $status before it had checked anything"
}

# <header> matched by $1 only in files matched by $2.
restrict_include() {
    local hits
    hits=$(grep -nE "^#include [<\"]($1)" "${sources[@]}" | grep -vE "^($2)") || return 0
    while IFS= read -r hit; do
        offence "${hit%%#*} ${hit#*#include } is allowed in $2 only"
    done <<<"$hits"
}

# Each of the files $2... to shell command $1 as "$1", on all cores; prints those for which it fails, in order.
each_file_that_fails() {
    local command=$1
    shift
    printf '%s\0' "$@" |
        xargs -0 -P "$(nproc)" -n 16 sh -c 'for f; do set -- "$f"; '"$command"' >/dev/null 2>&1 || echo "$f"; done' sh | sort
}

check_format() {
    local file
    while IFS= read -r file; do
        offence "$file:1: not formatted; run: make format"
    done < <(each_file_that_fails 'clang-format --dry-run -Werror "$1"' "${sources[@]}")
}

check_edges() {
    run_check python3 tests/lint/include_edges.py
    run_check python3 tests/fuzz/coverage.py --check
    restrict_include 'event2/' 'runtime/|tests/'
    restrict_include 'oneapi/dnnl/|dnnl' 'workers/host/|runtime/cli/version\.c|tests/'
    restrict_include 'cuda|cudnn|cublas' 'workers/cuda/|runtime/device/cuda/'
    restrict_include 'onnx\.pb-c\.h' 'loader/onnx/onnx_[a-z]*\.[ch]|examples/models/|tests/'
    local readers
    readers=$(grep -lE 'onnx\.pb-c\.h' loader/*/*.c loader/*/*.h 2>/dev/null | wc -l)
    [ "$readers" -le 1 ] || offence "loader/:1: $readers files include onnx.pb-c.h; one reader may"
}

check_names() {
    local name file header
    while IFS= read -r name; do
        offence "$name:1: more than one file has this name"
    done < <(git ls-files '*.c' '*.h' '*.cc' '*.sh' ':!bench' | xargs -n 1 basename | sort | uniq -d)
    for file in $(git ls-files 'runtime/*.c' 'allocator/*.c' 'loader/*.c' 'workers/*.c'); do
        case $file in
        runtime/cli/*) continue ;;                            # commands: cli.h has their table
        runtime/client/client.c) header=runtime/client/switchyard.h ;; # the public header
        # What is done with a whole graph.
        loader/onnx/onnx_reader.c | loader/infer/infer_ways.c | loader/fuse/graph_optimize.c) header=loader/graph/graph.h ;;
        runtime/sched/policies/*.c) header=runtime/sched/policies/policy_table.h ;;
        # Descriptions that kernels see, too.
        workers/cuda/library/library_*.c) header=workers/cuda/math/$(basename "$file" .c).h ;;
        *) header=${file%.c}.h ;;
        esac
        [ -e "$header" ] && continue
        # Parts that share a private header of another name.
        grep -qE '#include "[^"]*(_internal|/graph_infer|/cuda_program)\.h"' "$file" && continue
        # Parts of one thing may share its private header: foo_part.c with foo.h or foo_internal.h.
        header=$(dirname "$file")/$(basename "$file" .c | sed 's/_[^_]*$//')
        [ -e "$header.h" ] || [ -e "${header}_internal.h" ] || offence "$file:1: has no header ${file%.c}.h"
    done
}

# Those that are longer than a file may be, and the most that they may have.
longer_files() {
    cat <<'EOF'
tests/peers/fuzz_diff.py 644
tests/peers/grpc_client_check.py 717
tests/peers/python_client_check.py 624
EOF
}

# Files whose longest function is a switch with a case for each operator or a kernel, and tests: 100 lines a function.
may_have_long_functions() {
    printf '%s\n' workers/cuda/kernels/kernels_attention.cu workers/engine/curve_formulas.h workers/engine/train_formulas.h
    git ls-files 'tests/*.c' 'tests/*.h'
}

# A file has at most 600 lines, C or Python. A function of C at most 60: it runs from a line with only "{" to the next line with only "}".
check_lengths() {
    local python names
    mapfile -t python < <(git ls-files '*.py')
    names=$(mktemp)
    may_have_long_functions >"$names"
    run_check awk -v names="$names" 'NR == FNR { most[$1] = $2; next }
         FILENAME == names { long[$1] = 1; next }
         FNR == 1 { if (!(FILENAME in most)) most[FILENAME] = 600
                    start = 0; function_most = FILENAME in long ? 100 : 60 }
         FNR == most[FILENAME] + 1 { print FILENAME ":" FNR ": the file has more than " most[FILENAME] " lines: it is probably two" }
         /^\{$/ { start = FNR }
         /^\}$/ { if (start && FNR - start > function_most + 1) print FILENAME ":" start ": a function of " FNR - start - 1 " lines"
                  start = 0 }' <(longer_files) "$names" "${sources[@]}" "${python[@]}"
    rm -f "$names"
}

# Each header alone: it must bring what it needs.
check_headers() {
    local header
    while IFS= read -r header; do
        offence "$header:1: does not compile alone"
    done < <(each_file_that_fails \
        'echo "#include \"$1\"" | ${CC:-gcc} -std=gnu17 -fsyntax-only -I. -Ibuild/gen -D_GNU_SOURCE -x c -' "${headers[@]}")
}

check_words() {
    local hits
    hits=$(grep -nE '\b(TODO|FIXME|XXX)\b' "${sources[@]}") || return 0
    while IFS= read -r hit; do
        offence "${hit%%:*}:$(echo "$hit" | cut -d: -f2): unfinished"
    done <<<"$hits"
}

# Not read by clang-tidy 14: status.c and plugin_entry.c define what the hints redefine, train_kernels.c has target_clones,
# cuda_api.c and workers/mpi want headers of CUDA and MPI, which need not be here. Of the analyzer only dead stores are wanted, and those need no paths: with
# them, which it follows whenever any of its checks is on, it takes ten times as long and finds nothing more.
check_tidy() {
    local out option options=()
    for option in -include tests/lint/lint_hints.h -Xclang -analyzer-config -Xclang max-nodes=1; do
        options+=("--extra-arg=$option")
    done
    out=$(git ls-files 'runtime/*.c' 'allocator/*.c' 'loader/*.c' 'workers/*.c' 'examples/*.c' |
        grep -vE '^runtime/base/status.c|^runtime/device/cuda/(plugin_entry|cuda_api).c|^workers/mpi/|^workers/host/train/train_kernels.c' |
        xargs -P "$(nproc)" -n 4 clang-tidy --quiet "${options[@]}" 2>/dev/null |
        grep -E 'warning:|error:' | sed "s|$PWD/||" | sort -u)
    [ -z "$out" ] || echo "$out" | tee -a "$offences"
}

check_edges
check_names
check_lengths
check_headers
check_words
if command -v clang-format >/dev/null; then
    check_format
else
    echo "lint: clang-format is not installed: format not checked"
fi
if [ "${LINT_TIDY:-1}" = 0 ]; then
    echo "lint: clang-tidy left out"
elif command -v clang-tidy >/dev/null; then
    check_tidy
else
    echo "lint: clang-tidy is not installed: left out"
fi
n=$(wc -l <"$offences")
echo "lint: $n offences"
[ "$n" = 0 ]
