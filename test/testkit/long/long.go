// Package long marks tests that take minutes, or wait for many restarts.
package long

import (
	"os"
	"testing"
)

// Test marks the test that calls it in its first line. make test skips such tests, and make
// test-long runs no others.
func Test(t testing.TB) {
	t.Helper()
	if os.Getenv("TEST_LONG") == "skip" {
		t.Skip("takes minutes: make test-long")
	}
}
