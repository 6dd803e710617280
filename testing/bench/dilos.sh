#!/usr/bin/env bash
# The workloads of DiLOS' evaluation (its sections 6.1 to 6.3) on this machine, each with 100, 50, 25 and 12.5 % of its memory local:
# sequences with each prefetcher, Yonder's own workloads and Debian's programs beside zram, Redis with its guide, and
# deletes before gets. Figures go to FOLDER as JSON lines, one file for each part.
#
#   testing/bench/dilos.sh FOLDER [PART...]      PART: seq workloads programs redis del-get (all)
#   RUNS=3 FAR=tcp://127.0.0.1:7000 testing/bench/dilos.sh figures programs
#
# FAR is a node's URL; without it far memory is emulated, 2.5 us away. The legs with zram need root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly folder=${1:?"a folder for the figures is missing: testing/bench/dilos.sh FOLDER [PART...]"}
shift
readonly far=${FAR:-'emu://?latency=2.5us'} runs=${RUNS:-1} local='100%,50%,25%,12.5%'
readonly own=quicksort,k-means,snappy-compress,snappy-decompress,pagerank,bc,frame,linked-list
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(seq workloads programs redis del-get)
mkdir -p "$folder"
cargo build --release --quiet
bench() { target/release/yonder bench "$@" --far "$far"; }

for part in "${parts[@]}"; do
    echo "==> $part" >&2
    case $part in
    seq) bench seq --json >"$folder/seq.jsonl" && bench seq --pattern stride:7 --json >>"$folder/seq.jsonl" ;;
    workloads) bench programs --programs "$own" --local "$local" --runs "$runs" --json >"$folder/workloads.jsonl" ;;
    programs) bench programs --local "$local" --runs "$runs" --json >"$folder/programs.jsonl" ;;
    redis) bench redis --local "$local" --runs "$runs" --json >"$folder/redis.jsonl" ;;
    del-get) bench del-get --runs "$runs" --json >"$folder/del-get.jsonl" ;;
    *)
        echo "there is no part '$part': type some of seq workloads programs redis del-get" >&2
        exit 2
        ;;
    esac
done
