#!/bin/bash
# deb_check.sh FOLDER: the packages of FOLDER in a fresh Debian (debootstrap in a folder): they install with their dependencies, the service's own command line starts, a stock
# client (curl) is answered, training survives SIGTERM and a new start, a client program builds by pkg-config, and purge leaves nothing. Root; prints "deb-check: ok".
set -euo pipefail
folder=$(realpath "$1")
root=$(mktemp -d "${TMPDIR:-/tmp}/deb-check.XXXXXX")
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
server=""
work=""

finish() {
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    umount "$root/proc" "$root/dev" 2>/dev/null || true
    rm -rf --one-file-system "$root" "$work"
}
trap finish EXIT

say() { echo "  CHECK   $*"; }
fail() { echo "deb-check: $*" >&2; exit 1; }
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }

# A model, and a job on random images that does not end by itself.
work=$root.work
mkdir -p "$work/job"
build/make-models --out "$work/models" identity >/dev/null
build/make-models --out "$work/job" fashion_mlp >/dev/null
python3 - "$work/job" <<'PY'
import json, random, struct, sys
folder, n = sys.argv[1], 640
draw = random.Random(1)
for name, head, size in (("images", struct.pack(">4I", 0x803, n, 28, 28), n * 784), ("labels", struct.pack(">2I", 0x801, n), n)):
    with open(f"{folder}/{name}", "wb") as out:
        out.write(head + bytes(draw.randrange(10) for _ in range(size)))
json.dump({"name": "check", "model": "/tmp/job/fashion_mlp/1/model.onnx", "optimizer": {"kind": "sgd", "learning_rate": 0.01},
           "data": {"kind": "idx", "images": "/tmp/job/images", "labels": "/tmp/job/labels"}, "batch": 64, "epochs": 100000, "seed": 1,
           "snapshot": {"folder": "/var/lib/switchyard/snapshots", "every_steps": 1000000}},
          open(f"{folder}/job.json", "w"))
PY

say "a fresh $suite in $root"
base=build/deb-check-$suite.tar
if [ ! -e "$base" ]; then # once; the next check unpacks it
    debootstrap --variant=minbase --include=curl,ca-certificates,gcc,libc6-dev,pkg-config "$suite" "$root" "$mirror" >"$root.log" 2>&1 || { tail -5 "$root.log"; fail "debootstrap failed"; }
    rm "$root.log"
    tar -C "$root" -cf "$base.made" . && mv "$base.made" "$base"
else
    tar -C "$root" -xf "$base"
fi
chmod 755 "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no service manager in here
chmod 755 "$root/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$root/etc/resolv.conf"
for part in /etc/apt/apt.conf.d/*proxy*; do
    [ -f "$part" ] && cp "$part" "$root$part"
done
in_root apt-get update -qq
files_of() { find "$root" -xdev \( -path "$root/proc" -o -path "$root/dev" -o -path "$root/var/lib/dpkg" -o -path "$root/var/cache" -o -path "$root/var/log" \
    -o -path "$root/var/lib/apt" -o -path "$root/tmp" \) -prune -o -print | sed "s|^$root||" | sort; }
cp "$folder"/*.deb "$root/tmp/"

before=$(files_of)
say "apt-get install ./switchyard.deb ./libswitchyard0.deb ./libswitchyard-dev.deb"
in_root sh -c 'apt-get install -y -qq --no-install-recommends /tmp/switchyard_*.deb /tmp/libswitchyard0_*.deb /tmp/libswitchyard-dev_*.deb' >/dev/null 2>&1 || fail "the packages do not install"
[ -L "$root/etc/systemd/system/multi-user.target.wants/switchyard.service" ] || fail "the service is not enabled"
in_root switchyard version >/dev/null

say "a client by pkg-config"
cat >"$root/tmp/client.c" <<'C'
#include <stdio.h>
#include <switchyard.h>
int main(int argc, char **argv)
{
    sy_client *client;
    char *answer = NULL;
    int status = sy_client_connect(argv[argc - 1], 5000, &client);
    if (status == 0)
        status = sy_client_call(client, "status", "{}", &answer);
    printf("%s\n", status == 0 ? "answered" : sy_client_error(client));
    return status != 0;
}
C
in_root sh -c 'cc /tmp/client.c -o /tmp/client $(pkg-config --cflags --libs switchyard)' || fail "a client does not build"

# As the unit does: its folders, its command line, an unprivileged user.
exec_start=$(sed -n 's/^ExecStart=//p' "$root/lib/systemd/system/switchyard.service")
service_folders="var/lib/switchyard var/lib/switchyard/models run/switchyard"
(cd "$root" && mkdir -p $service_folders && chown -R 12345:12345 $service_folders)
cp -r "$work/models/." "$root/var/lib/switchyard/models/"
chown -R 12345:12345 "$root/var/lib/switchyard"

start() {
    : >"$root/tmp/serve.log"
    chroot --userspec=12345:12345 "$root" env -i PATH=/usr/bin:/bin HOME=/var/lib/switchyard $exec_start --http 127.0.0.1:18000 --grpc off --metrics off >"$root/tmp/serve.log" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        grep -q '^ready' "$root/tmp/serve.log" && return
        kill -0 "$server" 2>/dev/null || { cat "$root/tmp/serve.log"; fail "the service ended at its start"; }
        sleep 0.2
    done
    cat "$root/tmp/serve.log"
    fail "the service is not ready after 60 s"
}
stop() {
    kill -TERM "$server"
    wait "$server" || fail "SIGTERM: the service ended with $?"
    server=""
}
# Of the only job, once it trains: how many steps it has made. Until a worker has read its snapshot, that is none.
step() {
    for _ in $(seq 300); do
        in_root switchyard status --json --socket /run/switchyard/switchyard.sock |
            python3 -c 'import json, sys; job = json.load(sys.stdin)["jobs"][0]; job["state"] == "training" and print(job["step"])' | grep . && return
        sleep 0.2
    done
    fail "the job does not train after 60 s"
}

say "$exec_start"
start
in_root curl -fsS http://127.0.0.1:18000/v2/health/ready || { cat "$root/tmp/serve.log"; fail "not ready over HTTP"; }
answer=$(in_root curl -fsS http://127.0.0.1:18000/v2/models/identity/infer -d '{"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}')
echo "$answer" | grep -q '"data":\[1.0,2.0,3.0,4.0\]\|"data":\[1,2,3,4\]' || fail "curl was answered $answer"
in_root /tmp/client /run/switchyard/switchyard.sock | grep -q answered || fail "the C client was not answered"

say "training goes on after SIGTERM and a new start"
cp -r "$work/job" "$root/tmp/job"
chmod -R a+rX "$root/tmp/job"
in_root switchyard train /tmp/job/job.json --socket /run/switchyard/switchyard.sock >/dev/null || fail "the job was refused"
for _ in $(seq 300); do
    step_before=$(step)
    [ "$step_before" -eq 0 ] || break
    sleep 0.2
done
stop
start
step_after=$(step)
[ "$step_before" -gt 0 ] && [ "$step_after" -ge "$step_before" ] || fail "steps before and after the restart: '$step_before', '$step_after'"
say "step $step_before before, $step_after after"
stop

say "purge"
in_root sh -c 'apt-get purge -y -qq --auto-remove switchyard libswitchyard0 libswitchyard-dev' >/dev/null 2>&1 || fail "purge failed"
left=$(comm -13 <(echo "$before") <(files_of) | grep -v '^/etc/ld.so.cache$' || true)
[ -z "$left" ] || fail "left behind: $left"
echo "deb-check: ok"
