#!/usr/bin/env bash
# What a machine with a GPU has to show. Tests without one skip all of it, so run this where one is:
#
#     scripts/gpu_check.sh OUT [parity | sanitize | speed | wiki | populations ...]
#
# parity       the kernels equal the oracle, streams and populations are what they are alone
# sanitize     compute-sanitizer on a short stream, one block and clusters: memory, races
# speed        tsnn bench gpu at d = 64, 128, 256
# wiki         an epoch of tgbl-wiki at d = 256 with 200 negatives
# populations  five seeds of UCI with their evaluation, an ablation, a search of 128 trials, each timed
#
# Every part writes into OUT as it goes; one that fails does not stop the next, and the exit status counts them.
set -u
cd "$(dirname "$0")/.." || exit
out=${1:?name a folder for what comes out}
shift
python=${PYTHON:-python3}
export PYTHONPATH=src:. OMP_NUM_THREADS=1
tsnn="$python -m tsnn.cli.main"
$python -c 'import sys; from tsnn.engine.cuda import has_cupy; sys.exit(0 if has_cupy() else 1)' ||
    { echo "gpu_check: no GPU with CuPy is at hand" >&2; exit 2; }
wide="--set model.num_reflectors=4 --set model.num_neighbors=30 --set model.diffusion_steps=2"

parity() {
    $python -m pytest -q -rs tests/engine/test_parity.py tests/engine/test_cuda.py tests/training/test_stacked.py \
        -k "cuda or gpu or cluster or neighbors or teams"
}

sanitize() {
    for tool in memcheck racecheck; do
        compute-sanitizer --tool "$tool" --error-exitcode 1 \
            $python -m pytest -q tests/engine/test_cuda.py -k "cluster or neighbors or teams" || return 1
    done
}

speed() {
    $tsnn bench gpu --json > "$out/gpu-uci-d64.json" &&
        $tsnn bench gpu --json --set model.stalk_dim=128 $wide > "$out/gpu-uci-d128.json" &&
        $tsnn bench gpu --json --set model.stalk_dim=256 $wide > "$out/gpu-uci-d256.json"
}

wiki() {
    $python benchmarks/bench_tgb.py train.device=cuda > "$out/tgbl-wiki-gpu.json"
}

populations() {
    time $tsnn reproduce dgb --data uci --seeds 5 --visibility strict --population 5 \
        --set train.epochs=20 --set train.patience=20 --out "$out/seeds" &&
        time $tsnn reproduce ablation --data dgb:uci --visibility strict --population 21 --out "$out/ablation" &&
        time $tsnn tune dgb:uci --trials 128 --population 128 --storage "$out/tune.db"
}

mkdir -p "$out"
failed=0
for part in "${@:-parity sanitize speed wiki populations}"; do
    for name in $part; do
        echo "== $name"
        ( time "$name" ) 2>&1 | tee "$out/$name.log"
        [ "${PIPESTATUS[0]}" -eq 0 ] || { failed=$((failed + 1)); echo "== $name failed"; }
    done
done
exit $failed
