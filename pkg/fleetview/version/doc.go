// Package version makes the resourceVersions and continue tokens of a view. It is pure:
// what it makes depends on no state and on no replica.
//
// # Resource versions
//
// Clients rely on this: a resourceVersion is a decimal integer of any length without
// leading zeros, versions of one resource grow, and apimachinery's
// pkg/util/resourceversion compares them by length and then by digits. A view's version
// has 54 digits, always, so the order of two versions is the order of their times:
//
//	1795381200000000 271828  1234567890123 0000000000000048151
//	time in µs       replica cluster       the member's own version
//
// The version of an object therefore tells which cluster and which version of its own the
// object has there, without any state. Updates with metadata.resourceVersion, patches and
// preconditions of deletes are translated by arithmetic. A version that is not about one
// object (of a list, or of a bookmark) has neither: cluster and member are 0.
//
// The number of a cluster is made of its UID by a hash, so all replicas have the same one
// and a cluster that was removed and joined again has another.
//
// The replica is a random number of the process whose clock made the time. Two replicas
// come to the same time often, because they stamp the same events, and what a client has
// seen at that time is different. With the number, a version belongs to one answer.
//
// The clock is the wall clock as long as that grows. A client may bring a version that is
// ahead of a replica's wall clock, since another replica issued it; Clock.After then makes
// this replica's later versions greater, as in a hybrid logical clock.
//
// # Files
//
//	clock.go     Clock: times that grow
//	continue.go  Continue: how far the pages of a list are
//	version.go   Version and its text; the number of a cluster, the version of a member
package version
