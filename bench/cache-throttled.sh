#!/usr/bin/env bash
# The flash cache in real time: TPC-C on two loop devices, held by the kernel's block I/O controller
# to rates in the proportion of FaCE's disk array and of its flash drive; without a cache, then with
# one under each policy. Prints, for each: New-Orders a minute, those over the run without a cache,
# the cache's hit rate, and requests a transaction to store and cache.
#
#   bench/cache-throttled.sh [--quick] [DIR]
#
# DIR (default: /dev/shm, memory) has space for 2.5 GiB (2 GiB with --quick), and is faster than the
# rates below at all times: a disk that others use is not. Needs root, jq, losetup, mkfs.ext4 and
# cgroup v1's blkio controller; skips with a reason without them. `firn` is taken from $FIRN, or
# built. Ten minutes at most, five with --quick; afterwards loop devices, group and files are gone,
# however it ends.
#
# Environment: POLICIES ("lc tac exadata gsc select keep"; "lc gsc keep" with --quick),
# SECONDS_EACH, SLOWER (times slower than the paper's devices, both alike: 4, so that devices decide
# and not a small machine's processors), JSON (a file to append the results of `firn tpcc --json`
# to, one object a line).
#
# Only the measured seconds, and some of the warm-up, are throttled. Loading, filling the cache and
# the checkpoint of closing are not: over lazy cleaning, which has all dirty pages to write back,
# that checkpoint took minutes of the throttled disks. TPC-C's consistency conditions are checked
# once, after the last run (not with --quick).
set -euo pipefail

skip() {
  echo "skipped: $1" >&2
  exit 0
}

quick=
dir=/dev/shm
for argument; do
  case $argument in
    --quick) quick=1 ;;
    -*) echo "usage: bench/cache-throttled.sh [--quick] [DIR]" >&2; exit 2 ;;
    *) dir=$argument ;;
  esac
done
[ "$(id -u)" = 0 ] || skip "it needs root, for loop devices and the block I/O controller"
for tool in jq losetup mkfs.ext4 lsblk; do command -v "$tool" >/dev/null || skip "$tool is not installed"; done
controller=/sys/fs/cgroup/blkio
[ -w $controller/blkio.throttle.read_iops_device ] || skip "there is no cgroup v1 blkio controller at $controller"

if [ -n "$quick" ]; then
  warehouses=1 store=1000M cache=16M fill=5 limit_s=300
  policies=${POLICIES:-lc gsc keep} seconds=${SECONDS_EACH:-10}
else
  warehouses=2 store=1500M cache=32M fill=15 limit_s=600
  policies=${POLICIES:-lc tac exadata gsc select keep} seconds=${SECONDS_EACH:-20}
fi
# Seconds under the limits before counting, after `fill` seconds without limits, which fill the
# cache: until queues are in their steady state.
settle=5
slower=${SLOWER:-4}
firn=${FIRN:-}
if [ -z "$firn" ]; then
  cargo build --release --quiet -p firndb-cli
  firn=${CARGO_TARGET_DIR:-target}/release/firn
fi

group=$controller/firn-cache-throttled.$$
work=$(mktemp -d "$dir/firn-cache-throttled.XXXXXX")
loops=()
child=
clean_up() {
  trap - EXIT INT TERM
  set +e
  # Processes in the group have files open on the loop devices.
  local left
  while left=$(cat "$group/cgroup.procs" 2>/dev/null) && [ -n "$left" ]; do
    kill -9 $left 2>/dev/null
    sleep 0.2
  done
  for name in disks flash; do mountpoint -q "$work/$name" && umount "$work/$name"; done
  for loop in "${loops[@]}"; do losetup -d "$loop"; done
  for _ in 1 2 3 4 5; do rmdir "$group" 2>/dev/null && break || sleep 0.2; done
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM
# Runs firn, for as long as is left of the time; before others that want the processors, which would
# delay each completion of a device.
bounded() {
  local left=$((limit_s - SECONDS))
  [ $left -gt 0 ] || { echo "ended: it took more than $limit_s s" >&2; return 1; }
  timeout --kill-after=10 $left nice -n -15 "$firn" "$@"
}

mkdir "$group"

# A file system on a loop device over a new file, past the page cache. Returns the device in `loop`.
make_loop() { # name, size
  fallocate -l "$2" "$work/$1.img"
  loop=$(losetup --find --show --direct-io=on "$work/$1.img") || skip "no loop device with direct I/O can be made here"
  loops+=("$loop")
  mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop"
  mkdir "$work/$1"
  mount "$loop" "$work/$1"
}
number_of() { lsblk -ndo MAJ:MIN "$1" | tr -d ' '; }
limit() { echo "$1 $3" >"$group/blkio.throttle.$2"; } # device, file of the controller, value; 0 lifts it

make_loop disks "$store"
disks=$(number_of "$loop")
make_loop flash 200M
flash=$(number_of "$loop")

# Random requests of eight disks, and the rates of the Samsung 470 (FaCE, table 1).
throttle() {
  limit "$disks" read_iops_device $((2598 / slower))
  limit "$disks" write_iops_device $((2502 / slower))
  limit "$flash" read_iops_device $((28495 / slower))
  limit "$flash" write_iops_device $((6314 / slower))
  limit "$flash" read_bps_device $((251330000 / slower))
  limit "$flash" write_bps_device $((242800000 / slower))
}
lift() {
  for file in read_iops_device write_iops_device; do limit "$disks" "$file" 0; done
  for file in read_iops_device write_iops_device read_bps_device write_bps_device; do limit "$flash" "$file" 0; done
}

bounded tpcc --dir "$work/db" --store-path "$work/disks/store" --warehouses $warehouses --buffer 256M --load-only --no-check \
  >/dev/null
pages=$(($(stat -c %s "$work/disks/store") / 4096))
echo "# store of $((pages / 256)) MiB, cache of $cache, DRAM of 2M and the page map, 16 clients, $seconds s each,"
echo "# devices $slower times slower than the paper's; $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg) before it began"

throttled_run() { # the name of what is measured
  : >"$work/out"
  (
    echo $BASHPID >"$group/cgroup.procs"
    bounded tpcc --dir "$work/db" --no-load --no-check --clients 16 --buffer 2M --map 4M --warmup $((fill + settle)) \
      --seconds "$seconds" --json "$work/result.json"
  ) >"$work/out" 2>"$work/err" &
  child=$!
  until grep -q '^running' "$work/out"; do
    kill -0 "$child" 2>/dev/null || break
    sleep 0.1
  done
  sleep $fill
  throttle
  sleep $((settle + seconds))
  lift
  if ! wait "$child"; then
    child=
    echo "the run $1 failed:" >&2
    cat "$work/err" >&2
    exit 1
  fi
  child=
}

base=
measure() { # the name of what is measured
  throttled_run "$1"
  [ -n "$base" ] || base=$(jq .tpmC "$work/result.json")
  jq -r --arg name "$1" --argjson base "$base" --arg load "$(cut -d' ' -f1 /proc/loadavg)" '
    def each(f): (f / .commits * 100 | round) / 100;
    [$name, (.tpmC | round), (.tpmC / $base * 100 | round) / 100,
     (if .cache.hit_rate then (.cache.hit_rate * 1000 | round) / 10 else "-" end),
     each(.io.store.read_ops), each(.io.store.write_ops),
     each(.io.cache.read_ops), each(.io.cache.write_ops), (each(.io.cache.write_bytes) | round), $load] | @tsv' "$work/result.json"
  if [ -n "${JSON:-}" ]; then jq -c --arg cell "$1" '{cell: $cell} + .' "$work/result.json" >>"$JSON"; fi
}

printf 'cache\ttpmC\tover none\thits, %%\tstore reads\twrites\tflash reads\twrites\tbytes written\tload\n'
measure none
for policy in $policies; do
  bounded cache attach "$work/db" "$cache" --path "$work/flash/cache" --policy "$policy" >/dev/null
  measure "$policy"
  bounded cache detach "$work/db" >/dev/null
  rm -f "$work/flash/cache"
done
if [ -z "$quick" ]; then
  bounded tpcc --dir "$work/db" --check-only --buffer 256M
fi
