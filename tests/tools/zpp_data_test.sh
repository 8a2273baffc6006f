#!/bin/bash
# The command line of zpp-data: pipes, outputs and exit codes.
set -u
data=$PWD/$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failures=0

# expect CODE TEXT COMMAND...: exit code, and a text that the output must hold.
expect() {
  local code=$1 text=$2
  shift 2
  local output
  output=$("$@" 2>&1)
  local got=$?
  if [[ $got != "$code" || $output != *"$text"* ]]; then
    echo "FAILED: $*"
    echo "  expected exit code $code and \"$text\", found $got and: $output"
    failures=$((failures + 1))
  fi
}

expect 0 "zpp " "$data" --version
expect 0 "document-separator" "$data" tokenize --help
expect 2 "subcommand" "$data"
expect 2 "not in" "$data" inspect x --format y

for i in $(seq 2000); do printf 'Paragraph %d of a text.\n\n' "$i"; done >text
expect 0 "train.bin: " bash -c \
  "cat text | $data tokenize - -o out/train.bin --val-output out/val.bin --val-fraction 0.3"
expect 0 "tokenizer  byte, vocabulary 257, end of text 256" "$data" inspect out/train.bin
expect 0 "| Paragraph" "$data" inspect out/val.bin
expect 0 "a.llmc: " "$data" convert out/val.bin a.llmc --to llmc
expect 0 "format     llmc, u16" "$data" inspect a.llmc
expect 0 "2 documents" bash -c "printf 'a||b' | $data tokenize - -o ab --document-separator '||'"

expect 2 "none: no such file" "$data" inspect none
expect 2 "both input and output" "$data" tokenize text -o text
expect 2 "looks like text" "$data" inspect text
expect 2 "id 300 is outside" "$data" convert out/val.bin b --eot 300
expect 2 "after a backslash" "$data" tokenize text -o b --document-separator '\q'
expect 1 "Is a directory" "$data" tokenize . -o b
[[ -e b ]] && echo "FAILED: a failed command left an output" && failures=$((failures + 1))

exit $((failures > 0))
