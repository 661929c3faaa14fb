#!/usr/bin/env bash
# Checks that each update script has nothing to do. Works on a copy, so the tree is never written to.
set -euo pipefail
cd "$(dirname "$0")/.."

copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [[ -e "$file" ]]; then printf '%s\0' "$file"; fi
done | tar --null --files-from=- -cf - | tar -xf - -C "$copy"
cp -r "$copy/." "$copy.before"
trap 'rm -rf "$copy" "$copy.before"' EXIT

failed=0
for script in generated crds modules gofmt; do
  if ! "$copy/hack/update.sh" "$script"; then
    echo "hack/update-$script.sh failed" >&2
    failed=1
  elif ! diff -ruN "$copy.before" "$copy"; then
    echo "FAIL: $script is out of date; run: hack/update-$script.sh (or: make update)" >&2
    rm -rf "$copy.before" && cp -r "$copy/." "$copy.before"
    failed=1
  else
    echo "ok: $script"
  fi
done
exit "$failed"
