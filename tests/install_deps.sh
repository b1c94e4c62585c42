#!/bin/sh
# Installs the Debian packages that Switchyard needs and that are missing. As root or with sudo; otherwise
# it prints the one command to run and fails.
set -eu

packages="gcc g++ make pkg-config git libevent-dev libmsgpack-dev libjemalloc-dev libdnnl-dev liburing-dev
libprotobuf-c-dev protobuf-c-compiler libonnx-dev libjansson-dev libxxhash-dev libbenchmark-dev libcmocka-dev
libnuma-dev libhttp-parser-dev libnghttp2-dev zlib1g-dev libjpeg62-turbo-dev libpng-dev libpcre2-dev libssl-dev"

missing=""
for package in $packages "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

echo "switchyard: installing$missing"
command="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
    run=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    run="sudo"
else
    echo "switchyard: cannot install packages as this user; run: sudo apt-get update && sudo $command" >&2
    exit 1
fi
# Another apt may be at work: up to ten minutes are waited for its lock.
lock="-o DPkg::Lock::Timeout=600"
$run apt-get $lock update -qq
DEBIAN_FRONTEND=noninteractive $run $command $lock -qq
