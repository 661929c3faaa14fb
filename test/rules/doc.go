// Package rules holds the rules of the repository that a program can check:
// who may import whom, how long files and functions may be, what no file may
// contain. Each failure names the place and what to do about it.
//
// The imports are those of "go list", so the rules hold for what is compiled
// and not for what a regular expression believes. Tests are exempt from the
// rules on imports and length, but not from those on security.
package rules
