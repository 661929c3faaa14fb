package certificates

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// clusters is a RotationChecker that is told who has moved.
type clusters struct {
	missing []string
	last    time.Time
	asked   []string
}

func (c *clusters) Missing(_ context.Context, check Check) ([]string, time.Time, error) {
	c.asked = append(c.asked, check.ID)
	return c.missing, c.last, nil
}

func rotating(request string, w RotationChecker) Params {
	p := params()
	p.Request, p.Checker, p.Propagation = request, w, time.Minute
	return p
}

func ensure(t *testing.T, c client.Client, p Params, at time.Time) Result {
	t.Helper()
	result, err := Ensure(t.Context(), c, p, at)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// trusted is how many CAs are in a bundle.
func trusted(t *testing.T, c client.Client, bundle string) int {
	t.Helper()
	return bytes.Count(get(t, c, bundle).Data[caCert], []byte("BEGIN CERTIFICATE"))
}

func issuedBy(t *testing.T, c client.Client, leaf, ca string) bool {
	t.Helper()
	authority, err := readAuthority(get(t, c, ca))
	if err != nil {
		t.Fatal(err)
	}
	p := params()
	return pki.RenewalReason(get(t, c, leaf).Data["tls.crt"], authority.current, p.leaves()[leaf], start) == ""
}

// The whole way of both CAs: trust both, issue again, drop the old one, each not
// before everybody has moved.
func TestRotation(t *testing.T) {
	c, w := newClient(), &clusters{missing: []string{"away"}}
	ensure(t, c, rotating("", w), start)
	old := get(t, c, "cluster-proxy-signer").Data[caCert]
	oldAgent := get(t, c, AgentSignerSecret).Data[caCert]
	at := start.Add(time.Hour)
	for ca, rotation := range ensure(t, c, rotating("1", w), at).Rotations {
		if rotation.Phase != Distributing || !rotation.Moved {
			t.Errorf("%s: %+v, want %s and moved", ca, rotation, Distributing)
		}
	}
	if trusted(t, c, HubBundleSecret) != 2 || trusted(t, c, AgentBundleSecret) != 2 {
		t.Error("the next CAs are not trusted yet")
	}
	if !bytes.Equal(get(t, c, "cluster-proxy-signer").Data[caCert], old) || !issuedBy(t, c, "proxy-server", "cluster-proxy-signer") {
		t.Error("the next CA signs before everybody trusts it")
	}
	// One cluster has not moved: the hub CA waits for it, for as long as it takes.
	at = at.Add(1000 * time.Hour)
	result := ensure(t, c, rotating("1", w), at)
	if got := result.Rotations[HubCA]; got.Phase != Distributing || !slices.Equal(got.Waiting, []string{"away"}) || !strings.Contains(got.Message(), "away") {
		t.Errorf("hub CA: %+v, want Distributing, waiting for cluster away", got)
	}
	// That the hub trusts the next agent CA needs no cluster, and that clusters
	// show certificates of it does.
	if got := result.Rotations[AgentCA]; got.Phase != Reissuing || !bytes.Equal(get(t, c, AgentSignerSecret).Data[previousCert], oldAgent) {
		t.Errorf("agent CA: %+v, want Reissuing with the CA before as the previous one", got)
	}
	at = at.Add(1000 * time.Hour)
	if got := ensure(t, c, rotating("1", w), at).Rotations[AgentCA]; got.Phase != Reissuing || trusted(t, c, AgentBundleSecret) != 2 {
		t.Errorf("the old agent CA was dropped with a cluster that still uses it: %+v", got)
	}
	// It has come back just now: its other pods get time too.
	w.missing, w.last = nil, at
	if got := ensure(t, c, rotating("1", w), at.Add(time.Second)).Rotations[HubCA]; got.Phase != Distributing {
		t.Errorf("hub CA: %+v, want Distributing", got)
	}
	at = at.Add(2 * time.Minute)
	result = ensure(t, c, rotating("1", w), at)
	if result.Rotations[HubCA].Phase != Reissuing || result.Rotations[AgentCA].Phase != Stable {
		t.Errorf("rotations: %+v, want the hub's CA %s and the agents' %s", result.Rotations, Reissuing, Stable)
	}
	for _, leaf := range []string{"proxy-server", "agent-server", "proxy-client", APIClientSecret, UserServingSecret} {
		if !issuedBy(t, c, leaf, "cluster-proxy-signer") {
			t.Errorf("%s is still the old CA's", leaf)
		}
	}
	if bytes.Equal(get(t, c, "cluster-proxy-signer").Data[caCert], old) || !bytes.Contains(get(t, c, HubBundleSecret).Data[caCert], old) {
		t.Error("the old hub CA still signs, or is not trusted any more")
	}
	at = at.Add(2 * time.Minute)
	ensure(t, c, rotating("1", w), at)
	for _, name := range []string{"cluster-proxy-signer", AgentSignerSecret} {
		if s := get(t, c, name); len(s.Data) != 2 {
			t.Errorf("%s still holds more than a CA: %d keys", name, len(s.Data))
		}
	}
	if trusted(t, c, HubBundleSecret) != 1 || trusted(t, c, AgentBundleSecret) != 1 || bytes.Contains(get(t, c, HubBundleSecret).Data[caCert], old) {
		t.Error("an old CA is still trusted")
	}
	// The same request is not honoured twice, another one is.
	if got := ensure(t, c, rotating("1", w), at.Add(time.Hour)).Rotations[HubCA]; got.Phase != Stable {
		t.Errorf("hub CA: %+v, want Stable", got)
	}
	if got := ensure(t, c, rotating("2", w), at.Add(time.Hour)).Rotations[HubCA]; got.Phase != Distributing {
		t.Errorf("hub CA: %+v, want Distributing", got)
	}
}

// TestEveryPhaseNeedsItsOwnProof wants agreement in one phase to say nothing about the next.
func TestEveryPhaseNeedsItsOwnProof(t *testing.T) {
	c, w := newClient(), &clusters{}
	ensure(t, c, rotating("", w), start)
	for i := range 4 {
		ensure(t, c, rotating("1", w), start.Add(time.Duration(i)*time.Hour))
	}
	slices.Sort(w.asked)
	if len(w.asked) != 3 || len(slices.Compact(w.asked)) != 3 {
		t.Errorf("asked %q, want three questions, each once", w.asked)
	}
}

func TestRotationStartsByItselfBeforeTheEnd(t *testing.T) {
	c, w := newClient(), &clusters{missing: []string{"away"}}
	ensure(t, c, rotating("", w), start)
	if got := ensure(t, c, rotating("", w), start.Add(caValidity/2)).Rotations[HubCA]; got.Phase != Stable {
		t.Errorf("with half of its life left: %+v", got)
	}
	if got := ensure(t, c, rotating("", w), start.Add(caValidity*7/10)).Rotations[HubCA]; got.Phase != Distributing {
		t.Errorf("with less than a third left: %+v", got)
	}
	// Nobody can use a CA that has ended, so nobody is waited for.
	after := start.Add(caValidity + time.Hour)
	if got := ensure(t, c, rotating("", w), after).Rotations[HubCA]; got.Phase != Reissuing {
		t.Errorf("after its end: %+v, want Reissuing", got)
	}
}

// TestLastMinutesOfACA has a cluster hold up a rotation until the CA ends. Each write calls the
// reconciler again, so nothing may be written of which there is nothing better.
func TestLastMinutesOfACA(t *testing.T) {
	c := newClient()
	p := rotating("", &clusters{missing: []string{"gone"}})
	ensure(t, c, p, start)
	end := start.Add(caValidity)
	for _, before := range []time.Duration{leafValidity, leafValidity / 4, time.Hour, 2 * time.Minute, time.Minute, 30 * time.Second} {
		ensure(t, c, p, end.Add(-before))
		written := get(t, c, "proxy-server").ResourceVersion
		ensure(t, c, p, end.Add(-before+time.Second))
		if get(t, c, "proxy-server").ResourceVersion != written {
			t.Errorf("%v before the end of the CA a certificate is issued at each call", before)
		}
	}
	if expiry, err := pki.NotAfter(get(t, c, "proxy-server").Data["tls.crt"]); err != nil || !expiry.Equal(end) {
		t.Errorf("the certificate expires at %v (%v), want %v as the CA does", expiry, err, end)
	}
}

// Without anybody who can tell, nothing is dropped.
func TestNoCheckerNoProgress(t *testing.T) {
	c := newClient()
	p := rotating("", nil)
	ensure(t, c, p, start)
	p.Request = "1"
	ensure(t, c, p, start)
	for range 3 {
		_, err := Ensure(t.Context(), c, p, start.Add(time.Hour))
		if err == nil {
			t.Error("no error")
		}
	}
	if trusted(t, c, HubBundleSecret) != 2 || trusted(t, c, AgentBundleSecret) != 2 {
		t.Error("a CA was dropped")
	}
}

// A hub that is restored in the middle of a rotation goes on with it: what the
// two Secrets hold is all there is to know.
func TestRestoredHubGoesOn(t *testing.T) {
	c, w := newClient(), &clusters{}
	ensure(t, c, rotating("", w), start)
	ensure(t, c, rotating("1", w), start.Add(time.Hour))
	var kept []client.Object
	for _, name := range []string{"cluster-proxy-signer", AgentSignerSecret} {
		s := get(t, c, name)
		kept = append(kept, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "again", Namespace: hubNamespace, Name: name}, Data: s.Data})
	}
	restored := newClient(kept...)
	result := ensure(t, restored, rotating("1", w), start.Add(2*time.Hour))
	if result.Rotations[HubCA].Phase != Distributing || trusted(t, restored, HubBundleSecret) != 2 {
		t.Errorf("restored: %+v, want the hub's CA %s and two in its bundle", result.Rotations, Distributing)
	}
	if !bytes.Equal(get(t, restored, HubBundleSecret).Data[caCert], get(t, c, HubBundleSecret).Data[caCert]) {
		t.Error("the restored hub trusts others than before")
	}
}

// failing refuses to write the Secrets in names, as a hub does that is short of
// something.
func failing(c client.Client, names ...string) client.Client {
	refused := func(object client.Object) bool { return slices.Contains(names, object.GetName()) }
	notWell := errors.New("the hub is not well")
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if refused(object) {
				return notWell
			}
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if refused(object) {
				return notWell
			}
			return c.Update(ctx, object, options...)
		},
	})
}

// The Secret of a CA says that a phase began, the bundles could not be written,
// and the manager is away for a long time: nobody has heard of the next CA yet.
func TestPhaseBeginsWhenItIsWrittenOut(t *testing.T) {
	c, w := newClient(), &clusters{}
	ensure(t, c, rotating("", w), start)
	if _, err := Ensure(t.Context(), failing(c, HubBundleSecret, AgentBundleSecret), rotating("1", w), start.Add(time.Hour)); err == nil {
		t.Fatal("bundles could not be written, and nobody says so")
	}
	if get(t, c, AgentSignerSecret).Data[nextCert] == nil || trusted(t, c, AgentBundleSecret) != 1 {
		t.Fatal("the CA's Secret was to be written, and its bundle not")
	}
	at := start.Add(100 * time.Hour)
	for ca, rotation := range ensure(t, c, rotating("1", w), at).Rotations {
		if rotation.Phase != Distributing {
			t.Errorf("the %s signs before anybody can have read that it is trusted: %+v", ca, rotation)
		}
	}
	if trusted(t, c, HubBundleSecret) != 2 || trusted(t, c, AgentBundleSecret) != 2 {
		t.Error("the next CAs are not trusted")
	}
	for ca, rotation := range ensure(t, c, rotating("1", w), at.Add(2*time.Minute)).Rotations {
		if rotation.Phase != Reissuing {
			t.Errorf("%s: %+v, want %s", ca, rotation, Reissuing)
		}
	}
}

// Proxy servers would refuse every agent with a certificate of a CA that is not in their
// bundle.
func TestNextAgentCAWaitsForItsBundle(t *testing.T) {
	c, w := newClient(), &clusters{}
	ensure(t, c, rotating("", w), start)
	old := get(t, c, AgentSignerSecret).Data[caCert]
	short := failing(c, AgentBundleSecret)
	for i := range 3 {
		if _, err := Ensure(t.Context(), short, rotating("1", w), start.Add(time.Duration(1+i)*time.Hour)); err == nil {
			t.Error("a bundle could not be written, and nobody says so")
		}
	}
	if !bytes.Equal(get(t, c, AgentSignerSecret).Data[caCert], old) {
		t.Errorf("the next agent CA signs, and %d CA is trusted", trusted(t, c, AgentBundleSecret))
	}
	at := start.Add(4 * time.Hour)
	ensure(t, c, rotating("1", w), at)
	if got := ensure(t, c, rotating("1", w), at.Add(2*time.Minute)).Rotations[AgentCA]; got.Phase != Reissuing {
		t.Errorf("%+v, want %s", got, Reissuing)
	}
}

// A certificate that cannot be issued again is still the old CA's.
func TestOldCAStaysForACertificateThatCannotBeIssued(t *testing.T) {
	c, w := newClient(), &clusters{}
	ensure(t, c, rotating("", w), start)
	ensure(t, c, rotating("1", w), start.Add(time.Hour))
	short := failing(c, "proxy-server")
	for i := range 3 {
		result, err := Ensure(t.Context(), short, rotating("1", w), start.Add(time.Duration(2+i)*time.Hour))
		if err == nil || result.Rotations[HubCA].Phase != Reissuing {
			t.Errorf("%v, %+v; want an error and %s", err, result.Rotations[HubCA], Reissuing)
		}
	}
	if trusted(t, c, HubBundleSecret) != 2 {
		t.Error("the old CA is not trusted any more, and proxy servers have its certificate")
	}
	at := start.Add(6 * time.Hour)
	if got := ensure(t, c, rotating("1", w), at).Rotations[HubCA]; got.Phase != Reissuing {
		t.Errorf("nobody can have read the certificate yet: %+v", got)
	}
	if got := ensure(t, c, rotating("1", w), at.Add(2*time.Minute)).Rotations[HubCA]; got.Phase != Stable {
		t.Errorf("%+v, want %s", got, Stable)
	}
}

func caSecret(t *testing.T, name string, keys [2]string) (*corev1.Secret, pki.KeyPair) {
	t.Helper()
	pair, err := pki.NewCA(name, start, caValidity)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: hubNamespace, Name: name}, Data: map[string][]byte{keys[0]: pair.CertPEM, keys[1]: pair.KeyPEM}}, pair
}

func TestProvided(t *testing.T) {
	w := &clusters{}
	c := newClient()
	p := rotating("", w)
	p.Source = Provided{Client: c, Namespace: hubNamespace, Secrets: map[CAName]string{HubCA: "my-hub", AgentCA: "my-agents"}}
	if _, err := Ensure(t.Context(), c, p, start); err == nil || !strings.Contains(err.Error(), "my-hub") {
		t.Errorf("without the Secrets: error %v, want one that names my-hub", err)
	}
	hub, hubPair := caSecret(t, "my-hub", [2]string{"tls.crt", "tls.key"})
	agents, _ := caSecret(t, "my-agents", [2]string{"ca.crt", "ca.key"})
	for _, s := range []*corev1.Secret{hub, agents} {
		if err := c.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	ensure(t, c, p, start)
	if !bytes.Equal(get(t, c, HubBundleSecret).Data[caCert], hubPair.CertPEM) {
		t.Error("the hub CA is not the one that was provided")
	}
	// Another CA in the Secret is a rotation like every other.
	next, nextPair := caSecret(t, "my-hub", [2]string{"tls.crt", "tls.key"})
	changed := get(t, c, "my-hub")
	changed.Data = next.Data
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	if got := ensure(t, c, p, start.Add(time.Hour)); got.Rotations[HubCA].Phase != Distributing || got.Rotations[AgentCA].Phase != Stable {
		t.Errorf("rotations: %+v, want the hub's CA %s and the agents' %s", got.Rotations, Distributing, Stable)
	}
	ensure(t, c, p, start.Add(2*time.Hour))
	ensure(t, c, p, start.Add(3*time.Hour))
	if !bytes.Equal(get(t, c, HubBundleSecret).Data[caCert], nextPair.CertPEM) {
		t.Error("the hub CA is not the next one")
	}
	// The Secret goes: what there is goes on working, and it is said.
	if err := c.Delete(t.Context(), get(t, c, "my-hub")); err != nil {
		t.Fatal(err)
	}
	result, err := Ensure(t.Context(), c, p, start.Add(4*time.Hour))
	if err == nil || len(result.Expiry) != 5 {
		t.Errorf("without the Secret: error %v and %+v, want an error and 5 certificates", err, result)
	}
}

// One CA for both would make agents clients, and clients agents.
func TestCAsThatAreNotTwoAreRefused(t *testing.T) {
	one, _ := caSecret(t, "one", [2]string{"tls.crt", "tls.key"})
	two := one.DeepCopy()
	two.Name = "two"
	c := newClient(one, two)
	p := rotating("", &clusters{})
	p.Source = Provided{Client: c, Namespace: hubNamespace, Secrets: map[CAName]string{HubCA: "one", AgentCA: "two"}}
	if _, err := Ensure(t.Context(), c, p, start); err == nil || !strings.Contains(err.Error(), "same key") {
		t.Errorf("the same CA twice: error %v, want one that says same key", err)
	}
	c = newClient()
	ensure(t, c, rotating("", &clusters{}), start)
	agents := get(t, c, AgentSignerSecret)
	stolen := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: "stolen"}, Data: agents.Data}
	if err := c.Create(t.Context(), stolen); err != nil {
		t.Fatal(err)
	}
	mine, _ := caSecret(t, "mine", [2]string{"tls.crt", "tls.key"})
	if err := c.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	p.Source = Provided{Client: c, Namespace: hubNamespace, Secrets: map[CAName]string{HubCA: "stolen", AgentCA: "mine"}}
	if _, err := Ensure(t.Context(), c, p, start); err == nil {
		t.Error("the agent CA may become the hub CA")
	}
	if trusted(t, c, HubBundleSecret) != 1 {
		t.Error("the agent CA is trusted on the hub")
	}
	// The former hub CA is trusted until the rotation's end.
	c = newClient()
	ensure(t, c, rotating("", &clusters{}), start)
	before := get(t, c, "cluster-proxy-signer")
	p = rotating("1", &clusters{missing: []string{"away"}})
	ensure(t, c, p, start)
	p.Checker = &clusters{}
	ensure(t, c, p, start.Add(time.Hour))
	p.Checker = &clusters{missing: []string{"away"}}
	ensure(t, c, p, start.Add(2*time.Hour))
	for name, data := range map[string]map[string][]byte{"hub": get(t, c, "cluster-proxy-signer").Data, "was-hub": before.Data} {
		if err := c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: name}, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if len(get(t, c, "hub").Data[previousCert]) == 0 {
		t.Fatal("the hub CA was to be in the middle of its rotation")
	}
	p.Source = Provided{Client: c, Namespace: hubNamespace, Secrets: map[CAName]string{HubCA: "hub", AgentCA: "was-hub"}}
	p.Checker = &clusters{}
	agents = get(t, c, AgentSignerSecret)
	delete(agents.Data, previousCert) // the agent CA has arrived
	if err := c.Update(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(t.Context(), c, p, start.Add(2*time.Hour)); err == nil || !strings.Contains(err.Error(), "same key") {
		t.Errorf("the CA that was the hub's may become the agents': %v", err)
	}
}
