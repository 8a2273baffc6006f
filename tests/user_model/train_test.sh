#!/bin/bash
# Trains the model of this directory with its own trainer and checks that it learns.
set -eu
train=$PWD/$1
data=$PWD/$2
config=$PWD/$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

for i in $(seq 4000); do echo "Line $i counts to $((i * 7)) and says nothing else."; done >text
"$data" tokenize text -o train.bin --val-output val.bin --val-fraction 0.2

"$train" --config "$config" --set run.dir=run
[[ $(wc -l <run/metrics.jsonl) -ge 150 ]] || { echo "FAILED: the run logged too little"; exit 1; }

loss_of() { sed -n 's/.*"'"$1"'": *\([0-9.eE+-]*\).*/\1/p' run/metrics.jsonl; }
first=$(loss_of loss | head -n 1)
last=$(loss_of loss | tail -n 1)
val=$(loss_of val_loss | tail -n 1)
echo "loss $first -> $last, validation $val"
awk -v first="$first" -v last="$last" -v val="$val" \
  'BEGIN { exit !(first > 5 && last < 1 && val < 1) }' ||
  { echo "FAILED: the loss should fall from above 5 to below 1"; exit 1; }

# Another model is not in this trainer, and the message says what is.
code=0
message=$("$train" --config "$config" --set model.name=gpt 2>&1) || code=$?
[[ $code == 2 && $message == *my_gpt* ]] ||
  { echo "FAILED: expected exit code 2 and the known model, found $code and: $message"; exit 1; }
