package merge

import (
	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// supportedSkew is how many minor releases components of one cluster of Kubernetes may be
// apart. Clusters of one fleet are as a rule not further apart either.
const supportedSkew = 3

// Release is a minor release of Kubernetes, as in v1.36.0-eks-1. Its zero value is none.
type Release struct{ Major, Minor uint }

// ReleaseOf returns the release of a version of Kubernetes, or none if it is no version.
func ReleaseOf(version string) Release {
	parsed, err := utilversion.ParseSemantic(version)
	if err != nil {
		return Release{}
	}
	return Release{parsed.Major(), parsed.Minor()}
}

// Before reports whether r is older than other.
func (r Release) Before(other Release) bool {
	return r.Major < other.Major || r.Major == other.Major && r.Minor < other.Minor
}

// Near reports whether two releases can be of one fleet.
func (r Release) Near(other Release) bool {
	return r.Major == other.Major && max(r.Minor, other.Minor)-min(r.Minor, other.Minor) <= supportedSkew
}
