package version

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
)

const (
	timeDigits    = 16
	replicaDigits = 6
	clusterDigits = 13
	memberDigits  = 19
	digits        = timeDigits + replicaDigits + clusterDigits + memberDigits

	// minTime and MaxTime bound the times with 16 digits: the years 2001 to 2286.
	minTime = 1_000_000_000_000_000
	MaxTime = 9_999_999_999_999_999
	// clusterLimit is above the number of every cluster, and MemberLimit above every
	// version of a member.
	clusterLimit uint64 = 10_000_000_000_000
	MemberLimit  uint64 = 10_000_000_000_000_000_000
	// Replicas is above the number of every replica.
	Replicas = 1_000_000
)

// Version is a resourceVersion of a view.
type Version struct {
	// Time is in µs since 1970, from a Clock.
	Time int64
	// Replica is the number of that Clock's process.
	Replica uint32
	// Cluster is the Number of a cluster, or 0 in a version that is about no one object.
	Cluster uint64
	// Member is the version that the object has in its cluster, or 0 if it is unknown.
	Member uint64
}

// String returns the decimal that clients see. Parse is its inverse if the time is a
// Clock's and the numbers are from Number and OfMember.
func (v Version) String() string { return string(v.Append(make([]byte, 0, digits))) }

// Append appends the decimal that clients see to dst.
func (v Version) Append(dst []byte) []byte {
	dst = appendPadded(dst, uint64(v.Time), timeDigits)
	dst = appendPadded(dst, uint64(v.Replica), replicaDigits)
	dst = appendPadded(dst, v.Cluster, clusterDigits)
	return appendPadded(dst, v.Member, memberDigits)
}

func appendPadded(dst []byte, n uint64, width int) []byte {
	var buffer [20]byte
	text := strconv.AppendUint(buffer[:0], n, 10)
	for range width - len(text) {
		dst = append(dst, '0')
	}
	return append(dst, text...)
}

// Parse is the inverse of String. It refuses every text that String does not return for
// a Clock's time. The empty version and "0" are no versions of a view either.
func Parse(s string) (Version, error) {
	if len(s) != digits || s[0] == '0' {
		return Version{}, notOfView(s)
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return Version{}, notOfView(s)
		}
	}
	v, rest := Version{}, s
	// Digits only, and too few to overflow: no number has an error.
	next := func(width int) uint64 {
		n, _ := strconv.ParseUint(rest[:width], 10, 64)
		rest = rest[width:]
		return n
	}
	v.Time, v.Replica = int64(next(timeDigits)), uint32(next(replicaDigits))
	v.Cluster, v.Member = next(clusterDigits), next(memberDigits)
	return v, nil
}

// Moment returns the version without what it says of one object: versions of one moment
// have one position.
func (v Version) Moment() Version { return Version{Time: v.Time, Replica: v.Replica} }

func notOfView(s string) error {
	const most = 80
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Errorf("resourceVersion %q is not one of a fleet view: list the objects in the view to get one", s)
}

// Number returns the number that the cluster with this UID has in versions. Two UIDs of
// one fleet do not have the same number in practice: it is the first 8 bytes of a hash.
func Number(uid string) uint64 {
	sum := sha256.Sum256([]byte(uid))
	return binary.BigEndian.Uint64(sum[:]) % clusterLimit
}

// OfMember returns a member's resourceVersion as a number, or 0 if it is no decimal of
// at most 19 digits.
func OfMember(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil || n >= MemberLimit || resourceVersion[0] == '0' {
		return 0
	}
	return n
}
