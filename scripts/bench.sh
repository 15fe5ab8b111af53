#!/usr/bin/env bash
# Measures Tollgate against an empty gRPC server and writes one Markdown table.
#
#   scripts/bench.sh [FILE]        to FILE, or to standard output
#   QUICK=1 scripts/bench.sh       a smoke run of under a minute, its figures are worth nothing
#
# Every workload runs in turn with the empty server, so the ratios hold on a busy machine too.
# Starts its own Redis and ends all that it starts.
set -euo pipefail
table=${1:-/dev/stdout}
case $table in
  /*) ;;
  *) table=$PWD/$table ;;
esac
cd "$(dirname "$0")/.."

if [ -n "${QUICK:-}" ]; then
  repeats=1 warmup=100ms duration=400ms
else
  repeats=5 warmup=500ms duration=2s
fi

# Debian keeps servers out of an ordinary user's PATH on some setups.
PATH="$PATH:/usr/sbin:/usr/local/sbin"
for tool in cargo redis-server redis-cli; do
  if ! command -v "$tool" >/dev/null; then
    echo "bench.sh: no $tool found, install it and run this script again" >&2
    exit 1
  fi
done

cargo build --release --quiet
tollgate=target/release/tollgate

folder=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT TERM

fail() {
  echo "bench.sh: $1" >&2
  if [ -s "$2" ]; then
    tail -n 20 "$2" >&2
  fi
  exit 1
}

# A port that nothing listens on. Another program may take it before its user does, so starts are
# tried again.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
}

# start LOG READY COMMAND...: runs COMMAND until READY succeeds, within ten seconds.
start() {
  local log=$1 ready=$2
  shift 2
  "$@" >"$log" 2>&1 &
  local pid=$!
  for _ in $(seq 100); do
    if ! kill -0 "$pid" 2>/dev/null; then
      wait "$pid" || true
      return 1
    fi
    if $ready; then
      pids+=("$pid")
      return 0
    fi
    sleep 0.1
  done
  kill "$pid" 2>/dev/null || true
  wait "$pid" || true
  return 1
}

# rules DOMAIN LIMIT: the entries d0 to d3, each value with a limit per day of its own.
rules() {
  printf 'domain: %s\ndescriptors:\n' "$1"
  for entry in d0 d1 d2 d3; do
    printf '  - key: %s\n    rate_limit: { unit: day, requests_per_unit: %s }\n' "$entry" "$2"
  done
}
mkdir "$folder/rules"
rules bench 4000000000 >"$folder/rules/bench.yaml"
rules bench_over 2 >"$folder/rules/bench_over.yaml"

for attempt in 1 2 3 4 5; do
  redis_port=$(free_port)
  redis_ready() { [ "$(redis-cli -p "$redis_port" ping 2>/dev/null)" = PONG ]; }
  if start "$folder/redis.log" redis_ready redis-server --port "$redis_port" \
    --bind 127.0.0.1 --save '' --appendonly no --dir "$folder"; then
    break
  fi
  [ "$attempt" -lt 5 ] || fail "redis-server does not start" "$folder/redis.log"
done
redis=redis://127.0.0.1:$redis_port

# serve NAME STORE: sets `addr` to its gRPC address. A store that is late because the machine is
# busy is no fault of it, so it may take its time.
serve() {
  local http attempt
  for attempt in 1 2 3 4 5; do
    addr=127.0.0.1:$(free_port)
    http=127.0.0.1:$(free_port)
    tollgate_ready() {
      "$tollgate" hit bench d0=ready --addr "$addr" >/dev/null 2>&1
    }
    if start "$folder/$1.log" tollgate_ready env TOLLGATE_STORE_TIMEOUT=1s \
      "$tollgate" serve --rules "$folder/rules" --store "$2" --log-level warn \
      --grpc-addr "$addr" --http-addr "$http" --admin-addr "127.0.0.1:$(free_port)"; then
      return
    fi
  done
  fail "tollgate serve ($1) does not start" "$folder/$1.log"
}
serve memory memory
embedded=(--addr "$addr" --pid "tollgate=${pids[-1]}")
serve redis "$redis"
shared=(--addr "$addr" --pid "tollgate=${pids[-1]}" --redis "$redis")

# row LABEL OPTION...: one line of the table. Calls that failed are told in it, and at the end.
failed=
row() {
  local label=$1 code=0
  shift
  "$tollgate" bench --output markdown --label "$label" --compare --repeats "$repeats" \
    --warmup "$warmup" --duration "$duration" "$@" >>"$folder/rows" || code=$?
  case $code in
    0) ;;
    1) failed="$failed\`$label\` " ;;
    *) fail "\`$label\` was not measured" /dev/null ;;
  esac
}

row "embedded, 1 descriptor" "${embedded[@]}"
row "embedded, 4 descriptors" "${embedded[@]}" --descriptors 4
row "embedded, 1 connection" "${embedded[@]}" --connections 1
row "embedded, 2 connections" "${embedded[@]}" --connections 2
row "Redis, 1 descriptor" "${shared[@]}"
row "Redis, 1 descriptor, 256 in flight" "${shared[@]}" --in-flight 256
row "Redis, 1 connection" "${shared[@]}" --connections 1
row "Redis, 2 connections" "${shared[@]}" --connections 2
row "Redis, one hot key" "${shared[@]}" --dist hot
row "Redis, zipf, mostly over the limit" "${shared[@]}" --dist zipf --domain bench_over
row "Redis, 4 descriptors" "${shared[@]}" --descriptors 4
row "Redis, open loop of 4000/s" "${shared[@]}" --rate 4000

cat >"$table" <<TABLE
100,000 keys, 64 calls in flight over 4 connections unless the row says otherwise. Medians of
$repeats runs of $duration, each in turn with a run on an empty gRPC server (multi-thread runtime);
in brackets behind the CPU ratio the least and the most of a pair. CPU is that of server and Redis,
in seconds for 100,000 calls; latency in brackets is the ratio to the empty server. Redis commands
include those that scripts run.

$(uname -sm), $(nproc) cores, $("$tollgate" --version), $(redis-server --version | cut -d' ' -f1-3)

| workload | CPU s per 100k calls | ratio to empty | Redis commands per 1000 calls | calls/s | p50 µs | p99 µs | failed calls |
|---|---|---|---|---|---|---|---|
$(cat "$folder/rows")
TABLE
if [ -n "$failed" ]; then
  echo "bench.sh: calls failed in $failed" >&2
  exit 1
fi
