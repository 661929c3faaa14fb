#!/usr/bin/env bash
# Brings go.mod and go.sum in line with the imports.
set -euo pipefail
cd "$(dirname "$0")/.."
go mod tidy
