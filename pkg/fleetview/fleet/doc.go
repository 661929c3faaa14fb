// Package fleet has what the packages of a fleet view share: View and Member, which say what is
// served and where it comes from, how members are asked, and bounds of what half-read answers take.
//
// # Files
//
//	ask.go     requests to members, and their answers
//	fleet.go   View and Member
//	memory.go  bounds what half-read answers take in memory, by user
//	sized.go   a map of bounded size
package fleet
