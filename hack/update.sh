#!/usr/bin/env bash
# Runs every other update script, or those whose names are given. Generated code comes first: the rest depends on it.
set -euo pipefail
cd "$(dirname "$0")"
scripts=("$@")
if (($# == 0)); then scripts=(generated crds modules gofmt texts); fi
for script in "${scripts[@]}"; do
  ./"update-$script.sh"
done
