#!/bin/sh
# run_examples.sh SWITCHYARD OUT NAME...: trains each example from its beginning, draws its curves, and says which reached their targets.
set -eu
switchyard=$1 out=$2
shift 2
here=$(dirname "$0")
rm -rf "$out/snapshots"
mkdir -p "$out"
missed=""
for name in "$@"; do
    echo "== $name"
    "$switchyard" train "$here/$name.json" --local --plot "$out/$name.svg" || missed="$missed $name"
    if [ "$name" = generate ]; then
        build/venv/bin/python "$here/sample_text.py" "$out/snapshots" generate || missed="$missed $name"
    fi
done
if [ -n "$missed" ]; then
    echo "train-examples: below the target:$missed"
    exit 1
fi
echo "train-examples: all of them reached their targets: $*"
