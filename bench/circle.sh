#!/usr/bin/env bash
# Closes the circle: characterizes the device below a directory, runs TPC-C on it, and the same
# TPC-C in virtual time on the emulation of the profile that was measured. In turn, several rounds;
# prints New-Orders a minute, latencies of New-Order and how busy the device is, medians and ratios.
# Exit status 1 if throughput or the median latency is more than 15 % off; p99 is only reported.
#
#   bench/circle.sh DIR [--quick] [--rounds N] [--seconds N]
#
# --quick: the quick characterization, one round of 2 s on a tiny database, to try the script.
# --rounds and --seconds after it change that. Needs jq and findmnt; `firn` is taken from $FIRN, or
# built. The log and the store share the device in the real run; in the emulation each has one of
# its own, so the device must not be the limit, or the emulation is faster: read "busy".
set -euo pipefail

dir='' quick='' rounds=5 seconds=60
# A buffer of a fraction of the database, so that there are reads.
load='--warehouses 4 --clients 4 --buffer 32M'
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=--quick rounds=1 seconds=2 load='--scale tiny --warehouses 2 --clients 4 --buffer 2M' ;;
    --rounds) rounds=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    -*) echo "unknown option $1" >&2; exit 2 ;;
    *) dir=$1 ;;
  esac
  shift
done
[ -d "$dir" ] || { echo "usage: bench/circle.sh DIR [--quick] [--rounds N] [--seconds N]" >&2; exit 2; }
command -v jq >/dev/null || { echo "skipped: jq is not installed" >&2; exit 0; }
firn=${FIRN:-}
if [ -z "$firn" ]; then
  cargo build --release --quiet -p firndb-cli
  firn=${CARGO_TARGET_DIR:-target}/release/firn
fi
work=$(mktemp -d "$dir/firn-circle.XXXXXX")
trap 'rm -rf "$work"' EXIT

time="--seconds $seconds --warmup $seconds"

# The device's time with a request in flight, in ms; field 13 of its line in /proc/diskstats.
device=$(findmnt -no MAJ:MIN -T "$work" | head -n 1 | tr -d ' ' || true)
busy_ms() { awk -v d="$device" '$1":"$2 == d { print $13; found = 1 } END { if (!found) print 0 }' /proc/diskstats; }
median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
step() { echo "round $round: $* ($(date +%T))" >&2; }
of() { jq -r "$1" "$work/json"; }
run() { "$@" --json "$work/json" >"$work/out" 2>&1 || { cat "$work/out" >&2; return 1; }; }

record() {
  of .tpmC >>"$work/$1.tpmc"
  of '.transactions.new_order.latency_us.p50' >>"$work/$1.p50"
  of '.transactions.new_order.latency_us.p99' >>"$work/$1.p99"
}

echo "$(uname -srm), $(nproc) cores; $rounds rounds of $seconds s; before: $(uptime | sed 's/.*load/load/')"
for round in $(seq "$rounds"); do
  step characterize
  # shellcheck disable=SC2086
  run "$firn" characterize "$work" $quick --name circle --seed "$round" --out "$work/circle.toml"
  rm -rf "$work/db"
  step real device
  # shellcheck disable=SC2086
  run "$firn" tpcc --dir "$work/db" $load --log-devices 1 --load-only
  before=$(busy_ms) began=$(date +%s%N)
  # shellcheck disable=SC2086
  run "$firn" tpcc --dir "$work/db" --no-load --no-check $load $time
  awk -v b="$before" -v e="$(busy_ms)" -v s="$began" -v t="$(date +%s%N)" \
    'BEGIN { print (e - b) / ((t - s) / 1e6) }' >>"$work/real.busy"
  record real
  step emulation
  # shellcheck disable=SC2086
  run "$firn" lab tpcc --sim $load $time --seed "$round" --sim-cores "$(nproc)" \
    --profile-log "$work/circle.toml" --profile-data "$work/circle.toml"
  of '.simulation.device_busy // empty' >>"$work/emulated.busy"
  record emulated
done

off=0
printf '%-22s %12s %12s %8s\n' '' real emulated ratio
for row in 'tpmc|New-Orders a minute' 'p50|New-Order, p50, us' 'p99|New-Order, p99, us' 'busy|device busy'; do
  IFS='|' read -r key name <<<"$row"
  real=$(median <"$work/real.$key") emulated=$(median <"$work/emulated.$key")
  awk -v k="$key" -v n="$name" -v r="$real" -v e="$emulated" 'BEGIN {
    q = r > 0 && e != "" ? e / r : 0
    printf "%-22s %12.4g %12s %8s\n", n, r, (e == "" ? "-" : sprintf("%.4g", e)), (q ? sprintf("%.2f", q) : "-")
    exit ((k == "tpmc" || k == "p50") && (q < 0.85 || q > 1.15)) }' || off=1
done
echo "after: $(uptime | sed 's/.*load/load/')"
exit "$off"
