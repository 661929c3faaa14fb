package position

import (
	"context"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// Find returns the version of each member, by UID, at a version that a list or a stream of
// any replica gave to the owner. Other replicas are asked for what is not known here. It reports
// false for a version that is not known.
func (p *Store) Find(ctx context.Context, v version.Version, owner string) (map[string]string, bool) {
	at, known := p.lookup(v, owner)
	if known == complete || known == open || p.Ask == nil {
		return at, known >= part
	}
	var together Store
	_ = together.Import(p.Answer(v, owner)) // it is from here
	broken := false
	all := p.Ask(ctx, v.Moment(), owner, func(answer []byte) (enough bool) {
		if len(answer) == 0 {
			return false
		}
		if together.Import(answer) != nil {
			broken = true
			return false
		}
		_, known = together.lookup(v, owner)
		return known == complete || known == open
	})
	// A replica that has left meanwhile did not answer, but has handed over what it knew.
	_ = together.Import(p.Answer(v, owner))
	at, known = together.lookup(v, owner)
	// The pages that a list lacks may be ones that no client has asked for. That is known
	// if all replicas have answered.
	return at, known == complete || known == part && all && !broken
}
