#!/bin/sh
# Checks and measures hora on a machine with a GPU, from a wheel, without a network:
#
#     bench/gpu/run.sh dist/hora-…-manylinux_2_17_x86_64.whl [results.md]
#
# It needs a Python with a CUDA torch (PYTHON names it). np=1 goes through NCCL, np=2 on one GPU through pinned host
# memory, np=2 on two GPUs through NCCL. Exit codes: 0 all right, 1 a wrong result, 3 no GPU here.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
wheel=${1:?"usage: run.sh WHEEL [RESULTS]"}
results=${2:-gpu_results.md}
python=${PYTHON:-python3}
[ -f "$wheel" ] || { echo "run.sh: there is no wheel $wheel; build one with: make wheel" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
"$python" - "$wheel" "$work/site" <<'P'
import sys, zipfile
zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])  # a wheel without dependencies needs no installer
P
chmod +x "$work"/site/hora-*.data/scripts/hora
PYTHONPATH="$work/site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONPATH
hora=$(echo "$work"/site/hora-*.data/scripts/hora)
if ! "$python" "$here/check.py" --probe; then
    echo "run.sh: NO GPU HERE: nothing was checked and no results were written" >&2
    exit 3
fi
{
    echo "# hora on GPUs, $(date -u +%Y-%m-%d)"
    echo
    "$python" "$here/check.py" --describe
    echo "wheel: $(basename "$wheel")"
} > "$results"
bad=0
for case in "1 nccl own" "2 staged shared" "2 ipc shared" "2 nccl own"; do
    set -- $case
    np=$1 path=$2 place=$3
    echo "np $np, $path ($place GPU)" >&2
    if "$hora" run -np "$np" "$python" "$here/check.py" --path "$path" --place "$place" --out "$work/out"; then :; else
        bad=1
        echo "| $path, np $np, $place | FAILED: see the output above |" > "$work/out"
    fi
    { echo; cat "$work/out"; } >> "$results"
    rm -f "$work/out"
done
cat "$results"
exit $bad
