#!/bin/sh
# Makes a folder that runs on another machine: sh make_dist.sh BUILD OUT. It has the program, the CUDA plugin, the test binaries, the
# scripts that run them, and the shared libraries that all of these need, but for those of the C library and of the GPU's driver,
# which must be the machine's own.
#
#   DIST_CUDA_LIBS=0   leaves out CUDA's large libraries (cuBLASLt, cuDNN), for a machine that has them on its library path
set -eu
build=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$out"
mkdir -p "$out/bin/bench" "$out/lib" "$out/tests" "$out/bench"

cp "$build/switchyard" "$build/make-models" "$out/bin/"
for plugin in libswitchyard-cuda.so switchyard-cuda-keeper; do
    if [ -e "$build/$plugin" ]; then cp "$build/$plugin" "$out/lib/"; else echo "dist: without $plugin"; fi
done
for file in "$build"/tests/test_* "$build"/tests/*.so; do
    if [ -f "$file" ] && [ -x "$file" ]; then cp "$file" "$out/tests/"; fi
done
cp "$here"/*.sh "$here"/*.py "$out/tests/"
cp "$build/bench/swap" "$out/bin/bench/"
cp "$here"/../bench/gpu_*.py "$here"/../bench/sched/rpc.py "$here"/../bench/sched/server.py "$out/bench/"
if [ -d "$here/data" ]; then cp -r "$here/data" "$out/tests/"; fi

# The machine's own: the C library's parts, the loader, the driver.
is_the_machines() {
    case $(basename "$1") in
    libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libresolv.so* | libnss_* | libutil.so* | ld-linux* | \
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

cat >"$out/run.sh" <<'RUN'
#!/bin/sh
# sh run.sh gpu-check | sh run.sh gpu-bench | sh run.sh PROGRAM [arguments]: PROGRAM of bin/ or tests/, with the libraries of lib/.
here=$(cd "$(dirname "$0")" && pwd)
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
SY_CUDA_PLUGIN=${SY_CUDA_PLUGIN:-$here/lib/libswitchyard-cuda.so}
export SY_CUDA_PLUGIN
case ${1:-} in
"") sed -n 's/^# //p' "$0"; ls "$here/bin" "$here/tests"; exit 1 ;;
gpu-check) exec sh "$here/tests/gpu_check.sh" "$here/bin" "$here/tests" ;;
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
echo "dist: $out, $(du -sh "$out" | cut -f1); there: sh run.sh gpu-check, sh run.sh gpu-bench"
