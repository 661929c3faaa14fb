#!/usr/bin/env bash
# Formats all Go files.
set -euo pipefail
cd "$(dirname "$0")/.."
gofmt -w .
