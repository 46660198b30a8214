#!/usr/bin/env bash
# Holds `firn characterize` against fio: the same file, the same requests, one after the other for
# two seconds each, several rounds; prints median rates, and the median of the rounds' ratios. Exit
# status 1 if a ratio is more than 10 % off.
#
#   bench/fio-check.sh [DIR] [ROUNDS]
#
# DIR is on the file system in question (default: .). Needs fio and jq; `firn` is taken from $FIRN,
# or built. Nothing else should run on the machine. fio keeps requests in flight by threads (psync),
# as firn does.
set -euo pipefail

dir=${1:-.}
rounds=${2:-3}
for tool in fio jq; do
  if ! command -v "$tool" >/dev/null; then
    echo "skipped: $tool is not installed" >&2
    exit 0
  fi
done
firn=${FIRN:-}
if [ -z "$firn" ]; then
  cargo build --release --quiet -p firndb-cli
  firn=${CARGO_TARGET_DIR:-target}/release/firn
fi

work=$(mktemp -d "$dir/firn-fio-check.XXXXXX")
trap 'rm -rf "$work"' EXIT
file=$work/area
area=256M

# firn's description of the cell | fio's rw, request size, requests in flight, option for durable
# writes
cells='read sequential 4096 B|read|4k|1|
read sequential 1048576 B|read|1m|1|
read random 4096 B|randread|4k|1|
read random 4096 B, 16 in flight|randread|4k|16|
write_durable sequential 4096 B|write|4k|1|dsync
write_durable random 4096 B|randwrite|4k|1|dsync
write_durable random 4096 B, 16 in flight|randwrite|4k|16|dsync
write_durable sequential 1048576 B|write|1m|1|dsync
write sequential 1048576 B|write|1m|1|
write random 4096 B|randwrite|4k|1|'

firn_run() { # arguments: description, round; prints requests a second
  local consent=(--destroy-contents --i-am-sure "$file")
  [ -e "$file" ] || consent=(--keep --area "$area")
  "$firn" characterize "$file" --quick --only "$1" --seed "$2" --json "$work/firn.json" "${consent[@]}" >/dev/null
  jq .requests_per_second "$work/firn.json"
}

fio_run() { # arguments: rw, size, jobs, sync; prints requests a second
  local sync=()
  [ -z "$4" ] || sync=(--sync="$4")
  fio --name=check --filename="$file" --size="$area" --rw="$1" --bs="$2" --numjobs="$3" --thread --group_reporting \
    --direct=1 --ioengine=psync --time_based --runtime=2 --ramp_time=0.2 --output-format=json "${sync[@]}" |
    jq '.jobs[0] | .read.iops + .write.iops'
}

median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# The first run makes the file.
firn_run "read random 4096 B" 0 >/dev/null

outside=0
printf '| %-42s | %10s | %10s | %6s |\n|---|---:|---:|---:|\n' "requests a second" firn fio ratio
while IFS='|' read -r what rw size jobs sync; do
  : >"$work/rates"
  for round in $(seq "$rounds"); do
    # In alternating order: what one leaves in a device's cache is the other's load as often.
    if [ $((round % 2)) -eq 1 ]; then
      ours=$(firn_run "$what" "$round")
      theirs=$(fio_run "$rw" "$size" "$jobs" "$sync")
    else
      theirs=$(fio_run "$rw" "$size" "$jobs" "$sync")
      ours=$(firn_run "$what" "$round")
    fi
    echo "$ours $theirs" >>"$work/rates"
  done
  ours=$(cut -d' ' -f1 "$work/rates" | median)
  theirs=$(cut -d' ' -f2 "$work/rates" | median)
  ratio=$(awk '{ print ($2 > 0) ? $1 / $2 : 0 }' "$work/rates" | median)
  printf '| %-42s | %10.0f | %10.0f | %6.2f |\n' "$what" "$ours" "$theirs" "$ratio"
  if awk -v r="$ratio" 'BEGIN { exit !(r < 0.9 || r > 1.1) }'; then outside=$((outside + 1)); fi
done <<<"$cells"
if [ "$outside" -gt 0 ]; then
  echo "$outside figures differ by more than 10 %; on a busy machine that says nothing: repeat it on a quiet one" >&2
  exit 1
fi
