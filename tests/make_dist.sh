#!/bin/sh
# Makes a folder that runs on another machine: sh make_dist.sh BUILD OUT. It has the program, the CUDA plugin, the tests that need a GPU,
# the scripts that run them, and the shared libraries that all of these need, but for those of the C and C++ runtime and of the GPU's
# driver, which must be the machine's own.
#
#   DIST_CUDA_LIBS=0   leaves out CUDA's large libraries (cuBLASLt, cuDNN), for a machine that has them: on its library path, in its
#                      toolkit, or in its python3's packages, as PyTorch has them
#   DIST_STRIP=1       without what only debuggers read
set -eu
build=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$out"
mkdir -p "$out/bin/bench" "$out/lib" "$out/tests" "$out/bench"

cp "$build/switchyard" "$build/make-models" "$out/bin/"
for plugin in carried/libswitchyard-cuda.so switchyard-cuda-keeper; do
    if [ -e "$build/$plugin" ]; then cp "$build/$plugin" "$out/lib/"; else echo "dist: without $plugin"; fi
done
for file in "$build"/tests/test_gpu_* "$build"/tests/test_device "$build"/tests/test_cuda_plugin "$build"/tests/test_end_to_end "$build"/tests/test_worker_deaths \
    "$build"/tests/gpu_onnx_suite "$build"/tests/libgpu_*.so "$build"/tests/libswitchyard-tests.so; do
    if [ -f "$file" ] && [ -x "$file" ]; then cp "$file" "$out/tests/"; fi
done
cp "$here"/on_gpu/*.sh "$here"/on_gpu/*.py "$out/tests/"
# PyTorch scripts as jobs: the package, and the hook, which is compiled where PyTorch is.
package=$out/share/switchyard/python/switchyard
mkdir -p "$package/_run"
cp "$here"/../runtime/python/switchyard/*.py "$package/"
cp "$here"/../runtime/python/switchyard/_run/sitecustomize.py "$here"/../workers/torch/torch_hook.cc "$here"/../workers/torch/torch_flight.hh "$here"/../workers/torch/torch_spill.hh \
    "$here"/../workers/torch/script_page.h "$package/_run/"
cp "$build/bench/swap" "$out/bin/bench/"
cp "$here"/../bench/gpu_*.py "$here"/../bench/sched/rpc.py "$here"/../bench/sched/server.py "$out/bench/"
if [ -d /usr/share/libonnx-testdata/data ]; then cp -r /usr/share/libonnx-testdata/data "$out/tests/onnx_cases"; fi
if [ -d "$here/data" ]; then cp -r "$here/data" "$out/tests/"; fi

# The machine's own: the C and C++ runtime's parts, the loader, the driver. An older C++ runtime in front of the machine's would be taken by
# CUDA's libraries too.
is_the_machines() {
    case $(basename "$1") in
    libstdc++.so* | libgcc_s.so* | libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libresolv.so* | libnss_* | libutil.so* | ld-linux* | \
        libcuda.so* | libnvidia-*) return 0 ;;
    esac
    return 1
}

is_cudas() {
    case $(basename "$1") in
    libcudnn* | libcublas* | libcudart* | libnvrtc* | libnvJitLink*) return 0 ;;
    esac
    return 1
}

carry() {
    if is_the_machines "$1"; then return; fi
    if [ "${DIST_CUDA_LIBS:-1}" = 0 ] && is_cudas "$1"; then return; fi
    [ -e "$out/lib/$(basename "$1")" ] || cp -L "$1" "$out/lib/"
}

needed=$(find "$out" -type f -perm -u+x ! -name '*.sh' ! -name '*.py' -exec ldd {} \; 2>/dev/null |
    sed -n 's/^.* => \(\/[^ ]*\) .*$/\1/p' | sort -u)
for library in $needed; do carry "$library"; done
# cuDNN opens its parts, and the compiler that some of them use, by name.
for library in $needed; do
    case $library in
    */libcudnn.so.*)
        for part in "$(dirname "$library")"/libcudnn_*.so.* "$(dirname "$library")"/libnvrtc*.so.*; do
            if [ -e "$part" ]; then carry "$part"; fi
        done
        ;;
    esac
done

if [ "${DIST_STRIP:-0}" = 1 ]; then
    find "$out/bin" "$out/tests" "$out/lib" -type f -perm -u+x ! -name '*.sh' ! -name '*.py' ! -name 'libcu*' ! -name 'libnv*' \
        -exec strip --strip-debug {} +
fi

# The newest glibc and libstdc++ that any of it asks the loader for: on older ones nothing starts.
versions=$(find "$out/bin" "$out/lib" "$out/tests" -type f \( -perm -u+x -o -name '*.so*' \) ! -name '*.sh' ! -name '*.py' \
    -exec objdump -p {} \; 2>/dev/null | sed -n 's/^ .* \(GLIBC\|GLIBCXX\)_\([0-9][0-9.]*\)$/\1 \2/p' | sort -uV)
for name in GLIBC GLIBCXX; do
    if ! echo "$versions" | sed -n "s/^$name //p" | sort -V | tail -n 1 | grep . >"$out/$name"; then
        echo "dist: objdump shows no version of $name that $out needs" >&2
        exit 1
    fi
done

cat >"$out/run.sh" <<'RUN'
#!/bin/sh
# sh run.sh gpu-check | sh run.sh gpu-torch | sh run.sh gpu-bench | sh run.sh PROGRAM [arguments]: PROGRAM of bin/ or tests/, with the libraries of lib/.
#
#   SY_CUDA_LIBS=FOLDER:...   where cuBLASLt and cuDNN are, if they were not carried along and are not found
here=$(cd "$(dirname "$0")" && pwd)
# $1: what, by its name; $2: the file with what is needed; $3: what there is, nothing if there is none.
need() {
    needed=$(cat "$here/$2")
    if [ -z "$3" ] || [ "$(printf '%s\n' "$needed" "$3" | sort -V | head -n 1)" != "$needed" ]; then
        echo "run.sh: needs $1 $needed or newer; this machine's: ${3:-none}" >&2
        exit 1
    fi
}
need glibc GLIBC "$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')"
SY_OWN_LIBRARY_PATH=${LD_LIBRARY_PATH:-} # what other programs, PyTorch's, are started with
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
SY_CUDA_PLUGIN=${SY_CUDA_PLUGIN:-$here/lib/libswitchyard-cuda.so}
export LD_LIBRARY_PATH SY_OWN_LIBRARY_PATH SY_CUDA_PLUGIN

# Which the loader takes, by what it says of itself.
libstdcxx=$(ldd "$here/bin/bench/swap" 2>/dev/null | sed -n 's/^.*libstdc++\.so\.6 => \(\/[^ ]*\).*$/\1/p' | head -n 1)
need "libstdc++ with GLIBCXX" GLIBCXX "$(grep -ao 'GLIBCXX_3\.4\.[0-9]*' "${libstdcxx:-/nowhere}" 2>/dev/null |
    sed 's/^GLIBCXX_//' | sort -uV | tail -n 1)"

# What the plugin still lacks: in the toolkit, or where pip puts it for PyTorch.
lacks() {
    ldd "$SY_CUDA_PLUGIN" 2>/dev/null | grep -q "$1.* => not found"
}
candidates() {
    echo "${SY_CUDA_LIBS:-}" | tr : '\n'
    for toolkit in "${CUDA_HOME:-/usr/local/cuda}" /usr/local/cuda*; do
        echo "$toolkit/lib64"
        echo "$toolkit/targets/$(uname -m)-linux/lib"
    done
    python3 - 2>/dev/null <<'PYTHON'
import glob, os, sys
for path in sys.path:
    print("\n".join(sorted(glob.glob(os.path.join(path or ".", "nvidia", "*", "lib")))))
PYTHON
}
if lacks libcublasLt || lacks libcudnn; then
    for library in libcublasLt.so.13 libcudnn.so.9; do
        for folder in $(candidates); do
            if lacks "$library" && [ -e "$folder/$library" ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$folder; fi
        done
    done
    missing=$(ldd "$SY_CUDA_PLUGIN" 2>/dev/null | sed -n 's/^[[:space:]]*\(.*\) => not found.*$/\1/p' | tr '\n' ' ')
    if [ -n "$missing" ]; then
        echo "run.sh: not found: ${missing}name their folders in SY_CUDA_LIBS" >&2
        exit 1
    fi
fi
case ${1:-} in
"") sed -n 's/^# //p' "$0"; ls "$here/bin" "$here/tests"; exit 1 ;;
gpu-check) exec sh "$here/tests/gpu_check.sh" "$here/bin" "$here/tests" ;;
gpu-torch)
    shift
    exec python3 "$here/tests/gpu_torch.py" "$here/bin" "$@"
    ;;
esac
if [ "$1" = gpu-bench ]; then
    shift
    exec python3 "$here/bench/gpu_bench.py" "$here/bin" "$here/bench/results" "$@"
fi
program=$1
shift
for place in bin tests; do
    [ -x "$here/$place/$program" ] && exec "$here/$place/$program" "$@"
done
echo "run.sh: no $program in bin/ or tests/" >&2
exit 1
RUN
chmod +x "$out/run.sh"
missing=$(find "$out" -type f -perm -u+x ! -name '*.sh' ! -name '*.py' \
    -exec env LD_LIBRARY_PATH="$out/lib" ldd {} \; 2>/dev/null | sed -n 's/^ *\(.*\) => not found.*$/\1/p' | sort -u)
if [ -n "$missing" ] && [ "${DIST_CUDA_LIBS:-1}" != 0 ]; then
    echo "dist: not found: $missing" >&2
    exit 1
fi
echo "dist: $out, $(du -sh "$out" | cut -f1); there: sh run.sh gpu-check, sh run.sh gpu-torch, sh run.sh gpu-bench"
