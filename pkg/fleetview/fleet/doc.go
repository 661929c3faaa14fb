// Package fleet has what the packages of a fleet view share: View and Member, which say what is
// served and where it comes from, and bounds of what half-read answers take.
//
// # Files
//
//	fleet.go   View and Member
//	asking.go  how many members are asked at a time, and why one failed
//	memory.go  bounds what half-read answers take in memory, by user
//	sized.go   a map of bounded size
package fleet
