package certificates

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Rotation says how far the rotation of a CA is.
type Rotation struct {
	Phase Phase
	// Expiry is that of the CA which signs.
	Expiry time.Time
	// Waiting are the clusters that have not proved that they have moved, sorted.
	Waiting []string
	// Moved is true if the phase began in this call of Ensure.
	Moved bool
}

// CurrentCheck is whether an agent has a certificate of the agent CA, as it is now,
// and accepts those of the hub CA. It is an error while Ensure has not made them.
func CurrentCheck(ctx context.Context, reader client.Reader, p Params, id string) (Check, error) {
	var read [2]*authority
	for i, name := range []string{p.SignerName, AgentSignerSecret} {
		var secret corev1.Secret
		if err := reader.Get(ctx, client.ObjectKey{Namespace: p.SignerNamespace, Name: name}, &secret); err != nil {
			return Check{}, fmt.Errorf("reading a CA: %w", err)
		}
		a, err := readAuthority(&secret)
		if err != nil {
			return Check{}, err
		}
		read[i] = a
	}
	hub, agents := read[0], read[1]
	return Check{ID: id, Tunnel: hub.current, Servers: hub.bundle(), Client: hub.current, Agents: agents.bundle()}, nil
}

func checkOf(ca CAName, hub, agents *authority) Check {
	check := Check{Tunnel: hub.current, Servers: hub.bundle(), Client: hub.current, Agents: agents.bundle()}
	if ca == HubCA {
		check.Client = hub.newest()
		check.ID = fmt.Sprintf("%s %s %s", ca, hub.phase(), hub.newest().Fingerprint())
		return check
	}
	check.Agents = agents.newest().CertPEM()
	check.ID = fmt.Sprintf("%s %s %s", ca, agents.phase(), agents.newest().Fingerprint())
	return check
}

// rotate starts a rotation if one is wanted, and goes on with one that has
// begun as far as it may. trusted says that the bundles of its phase were written, and
// issued that the certificates which it asks for were issued too.
func rotate(ctx context.Context, c client.Client, p Params, ca CAName, hub, agents *authority, trusted, issued bool, now time.Time) (Rotation, error) {
	a, other := hub, agents
	if ca == AgentCA {
		a, other = agents, hub
	}
	if a.phase() == Stable {
		return p.start(ctx, c, ca, a, other, now)
	}
	rotation := Rotation{Phase: a.phase(), Expiry: a.current.NotAfter()}
	if !trusted {
		return rotation, nil // verifiers have not heard of the next CA
	}
	if !issued && a.phase() == Reissuing {
		return rotation, nil // a certificate of the old CA may still be in use
	}
	stableSince := a.since(now)
	// The next agent CA may sign once every process on the hub trusts it; all
	// other steps depend on clusters.
	if (ca == HubCA || a.phase() == Reissuing) && !a.oldEnded(now) {
		if p.Checker == nil {
			return rotation, fmt.Errorf("rotating the %s: there is no way to find out which clusters have moved", ca)
		}
		missing, last, err := p.Checker.Missing(ctx, checkOf(ca, hub, agents))
		if err != nil {
			return rotation, fmt.Errorf("finding out which clusters have moved to the new %s: %w", ca, err)
		}
		if rotation.Waiting = missing; len(missing) > 0 {
			return rotation, nil
		}
		if last.After(stableSince) {
			stableSince = last
		}
	}
	// Other pods of the same clusters, and those of the hub, read changed
	// Secrets a little later.
	if now.Sub(stableSince) < p.Propagation {
		return rotation, nil
	}
	a.advance()
	return p.write(ctx, c, a, now)
}

// start stages the next CA if there is a reason to.
func (p Params) start(ctx context.Context, c client.Client, ca CAName, a, other *authority, now time.Time) (Rotation, error) {
	rotation := Rotation{Phase: Stable, Expiry: a.current.NotAfter()}
	pair, err := p.wanted(ctx, ca, a, now)
	if err != nil || len(pair.CertPEM) == 0 {
		return rotation, err
	}
	next, err := pki.ParseCA(pair)
	if err != nil {
		return rotation, fmt.Errorf("reading the next %s: %w", ca, err)
	}
	if err := pki.CheckApart(next, other.bundle()); err != nil {
		return rotation, err
	}
	a.stage(pair)
	if p.Request != "" {
		if a.secret.Annotations == nil {
			a.secret.Annotations = map[string]string{}
		}
		a.secret.Annotations[p.requestKey()] = p.Request
	}
	return p.write(ctx, c, a, now)
}

// wanted is the CA to change to, or nothing.
func (p Params) wanted(ctx context.Context, ca CAName, a *authority, now time.Time) (pki.KeyPair, error) {
	if p.Source == nil {
		asked := p.Request != "" && a.secret.Annotations[p.requestKey()] != p.Request
		if !asked && !a.current.NearEnd(now) {
			return pki.KeyPair{}, nil
		}
		return p.newCA(ctx, ca, now)
	}
	pair, err := p.newCA(ctx, ca, now)
	if err != nil {
		return pki.KeyPair{}, err
	}
	given, err := pki.ParseCA(pair)
	if err != nil || given.Equal(a.current) {
		return pki.KeyPair{}, err
	}
	if !now.Before(given.NotAfter()) {
		return pki.KeyPair{}, fmt.Errorf("the %s that was provided expired at %s", ca, given.NotAfter().UTC().Format(time.RFC3339))
	}
	return pair, nil
}

func (p Params) write(ctx context.Context, c client.Client, a *authority, now time.Time) (Rotation, error) {
	if err := a.write(ctx, c, now); err != nil {
		return Rotation{}, err
	}
	fresh, err := readAuthority(a.secret)
	if err != nil {
		return Rotation{}, err
	}
	*a = *fresh
	return Rotation{Phase: a.phase(), Expiry: a.current.NotAfter(), Moved: true}, nil
}

// Message is for a condition.
func (r Rotation) Message() string {
	message := "Expiry:" + r.Expiry.UTC().Format(time.RFC3339)
	const shown = 5
	switch waiting := len(r.Waiting); {
	case waiting > shown:
		message += fmt.Sprintf("; waits for clusters %s and %d more", strings.Join(r.Waiting[:shown], ", "), waiting-shown)
	case waiting > 0:
		message += "; waits for clusters " + strings.Join(r.Waiting, ", ")
	case r.Phase != Stable:
		message += "; waits until changed Secrets are surely read everywhere"
	}
	return message
}
