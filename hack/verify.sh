#!/usr/bin/env bash
# Checks that each update script has nothing to do, but for texts, which the tests hold to the code. Works on a copy, so the tree is never written to.
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

if go tool actionlint -shellcheck= -pyflakes=; then
  echo "ok: workflows"
else
  echo "FAIL: mend .github/workflows, as actionlint says above" >&2
  failed=1
fi

# govulncheck asks a database on the internet. Without one the check is named as missing: it says nothing about the code.
if report="$(go tool govulncheck ./... 2>&1)"; then
  echo "ok: vuln"
elif grep -q '^govulncheck: fetching vulnerabilities' <<<"$report"; then
  echo "SKIPPED: vuln: the vulnerability database cannot be reached from here; run: make vuln" >&2
else
  printf '%s\nFAIL: raise the modules named above in go.mod\n' "$report" >&2
  failed=1
fi
exit "$failed"
