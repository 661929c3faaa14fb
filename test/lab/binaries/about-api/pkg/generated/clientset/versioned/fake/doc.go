// Package fake is imported by OCM's own tests, which the lab does not run; it is
// here for go mod tidy.
package fake
