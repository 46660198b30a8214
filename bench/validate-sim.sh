#!/usr/bin/env bash
# Holds TPC-C in virtual time against the same engine in real time, on emulated devices of the same
# profiles:
#   real  firn lab tpcc --emulate: real threads, clock and files, each behind a device that takes its profile's time
#   fuse  firn tpcc on files of `firn lab emulate` mounts: the kernel's I/O path and another emulation of the same profiles
# In turn, several rounds; prints transactions a second and the medians of real and fuse over
# virtual. Exit status 1 if one is more than 15 % off.
#
#   bench/validate-sim.sh [ROUNDS] [SECONDS]
#
# Needs root, FUSE and jq; `firn` is taken from $FIRN, or built. Files are on /dev/shm, so that no
# real disk counts. What runs in real time runs at real-time priority if chrt is there: the
# simulated machine has nothing else to do, and so shall the real one. Still, read `uptime` in the
# output.
set -euo pipefail

rounds=${1:-3}
seconds=${2:-20}
for tool in jq; do
  command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed" >&2; exit 0; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: mounting needs root" >&2; exit 0; }
[ -e /dev/fuse ] || { echo "skipped: there is no /dev/fuse" >&2; exit 0; }
[ -d /dev/shm ] || { echo "skipped: there is no /dev/shm" >&2; exit 0; }
firn=${FIRN:-}
if [ -z "$firn" ]; then
  cargo build --release --quiet -p firndb-cli
  firn=${CARGO_TARGET_DIR:-target}/release/firn
fi
urgent=()
if command -v chrt >/dev/null && chrt -r 5 true 2>/dev/null; then urgent=(chrt -r 5); fi

work=$(mktemp -d /dev/shm/firn-validate.XXXXXX)
mounts=()
unmount() {
  local mount
  for mount in "${mounts[@]}"; do umount "$mount" 2>/dev/null || true; done
  mounts=()
  wait
}
trap 'unmount; rm -rf "$work"' EXIT

# Name | log's profiles | data's profile | population, clients, DRAM
cases='log flash-a x2, data disk-7200|flash-a flash-a|disk-7200|--warehouses 1 --clients 4 --buffer 16M
log network-volume x2, data network-volume|network-volume network-volume|network-volume|--warehouses 1 --clients 4 --buffer 24M
log microsd, data microsd|microsd|microsd|--warehouses 1 --clients 4 --buffer 16M
log flash-a x2, all in DRAM|flash-a flash-a|disk-7200|--scale tiny --warehouses 4 --clients 4 --buffer 64M'

# Runs a command and prints its transactions a second.
rate() {
  if ! "$@" --json "$work/json" >"$work/out" 2>&1; then
    cat "$work/out" >&2
    return 1
  fi
  jq .transactions_per_second "$work/json"
}

# Mounts: profile, name.
mount_one() {
  mkdir -p "$work/$2" "$work/$2.backing"
  "${urgent[@]}" "$firn" lab emulate --profile "$1" --size 1G --backing "$work/$2.backing" "$work/$2" >"$work/$2.out" 2>&1 &
  mounts+=("$work/$2")
  for _ in $(seq 100); do
    mountpoint -q "$work/$2" && return
    sleep 0.1
  done
  cat "$work/$2.out" >&2
  return 1
}

# Loads on mounts of a fast device, then mounts the same bytes as what they are to be, and runs.
fuse() {
  local logs=$1 data=$2 load=$3 at=0 log paths=()
  rm -rf "$work"/fuse.*
  for log in $logs; do
    mount_one nvme "fuse.log$at"
    paths+=(--log-path "$work/fuse.log$at/log")
    at=$((at + 1))
  done
  mount_one nvme fuse.data
  # shellcheck disable=SC2086
  "$firn" tpcc --dir "$work/fuse.db" $load "${paths[@]}" --store-path "$work/fuse.data/store" --load-only >"$work/out" 2>&1 ||
    { cat "$work/out" >&2; return 1; }
  unmount
  at=0
  for log in $logs; do
    mount_one "$log" "fuse.log$at"
    at=$((at + 1))
  done
  mount_one "$data" fuse.data
  # shellcheck disable=SC2086
  fuse_rate=$(rate "${urgent[@]}" "$firn" tpcc --dir "$work/fuse.db" --no-load $load $time)
  unmount
}

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# FUSE's run begins with an empty buffer: the warm-up is as long as the run.
time="--seconds $seconds --warmup $seconds"
echo "$(uname -srm), $(nproc) cores; $rounds rounds of $seconds s${urgent:+, at real-time priority}; before: $(uptime | sed 's/.*load/load/')"
printf '%-44s %8s %8s %8s %7s %7s\n' case virtual real fuse real/v fuse/v
off=0
while IFS='|' read -r name logs data load; do
  profiles="--profile-data $data"
  for log in $logs; do profiles="$profiles --profile-log $log"; done
  # One run: equal arguments give equal figures.
  # shellcheck disable=SC2086
  virtual=$(rate "$firn" lab tpcc --sim $load $time $profiles)
  : >"$work/reals"
  : >"$work/fuses"
  for _ in $(seq "$rounds"); do
    rm -rf "$work/db"
    # shellcheck disable=SC2086
    rate "${urgent[@]}" "$firn" lab tpcc --emulate --dir "$work/db" $load $time $profiles >>"$work/reals"
    fuse "$logs" "$data" "$load"
    echo "$fuse_rate" >>"$work/fuses"
  done
  real=$(median <"$work/reals")
  fused=$(median <"$work/fuses")
  awk -v name="$name" -v v="$virtual" -v r="$real" -v f="$fused" 'BEGIN {
    printf "%-44s %8.1f %8.1f %8.1f %7.2f %7.2f\n", name, v, r, f, r / v, f / v
    exit (r / v < 0.85 || r / v > 1.15 || f / v < 0.85 || f / v > 1.15) }' || off=1
done <<<"$cases"
echo "after: $(uptime | sed 's/.*load/load/')"
exit "$off"
