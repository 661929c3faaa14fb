package hostile

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

const (
	// cutOffWithin is how long something may go on that was taken away: 10 s, and as
	// much again for a machine that is busy with everything else in the lab.
	cutOffWithin = 20 * time.Second
	// tokensLinger is how long a kube-apiserver believes a token that it looked at.
	tokensLinger = 10 * time.Second
)

// testRevocation takes rights away from users and clusters who go on. The tables
// that it logs are those in docs/how-to/cut-off.md.
func (s *Suite) testRevocation(t *testing.T) {
	t.Run("Users", s.testRevokedUsers)
	t.Run("Agents", s.testRevokedAgents)
}

// testRevokedUsers takes the right from one user and the service account from
// another, while they have every kind of stream open.
func (s *Suite) testRevokedUsers(t *testing.T) {
	const right, token, bystander = "revoked-right", "revoked-token", "revoked-nothing"
	cluster := s.attacker()
	endpoints := s.endpoints(t, cluster)
	s.mayDoAllOn(t, cluster, right, token, bystander)
	tokens := map[string]string{}
	streams := map[string][]*openStream{}
	for _, user := range []string{right, token, bystander} {
		tokens[user] = s.hubUser(t, user, mayReach(cluster, "*"), mayStream(cluster))
		for _, d := range endpoints {
			// The hub's kube-apiserver tells the proxy API of the user, not of the token.
			if user != token || d.name != "aggregated" {
				streams[user] = append(streams[user], s.openAll(t, d, user, cluster, tokens[user])...)
			}
		}
	}
	table := newCutOff(t)
	table.begin(right, cutOffWithin)
	if err := s.Hub.RbacV1().ClusterRoleBindings().Delete(t.Context(), right, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	table.begin(token, cutOffWithin+tokensLinger)
	if err := s.Hub.CoreV1().ServiceAccounts("default").Delete(t.Context(), token, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitForRefusals(t, table, endpoints, tokens, map[string]int{right: http.StatusForbidden, token: http.StatusUnauthorized})
	table.wait(slices.Concat(streams[right], streams[token]))
	for _, o := range streams[bystander] {
		if len(o.ended) > 0 {
			t.Errorf("the bystander's %s at %s has ended", o.kind, o.endpoint)
		}
	}
	for _, d := range endpoints {
		if code, _, body := d.send(t, d.request(http.MethodGet, "/version", tokens[bystander], "")); code != http.StatusOK {
			t.Errorf("the bystander is answered %d %.200s at %s", code, body, d.name)
		}
	}
	t.Logf("until what was taken away ended:\n%s", table)
}

// waitForRefusals sends requests of users at every endpoint until each is answered
// as wanted.
func (s *Suite) waitForRefusals(t *testing.T, table *cutOff, endpoints []endpoint, tokens map[string]string, want map[string]int) {
	t.Helper()
	refused := map[string]bool{}
	suite.Eventually(t, "new requests to be refused", func() (err error) {
		for _, d := range endpoints {
			for user, code := range want {
				key := user + " at " + d.name
				if refused[key] {
					continue
				}
				if got, _, body := d.send(t, d.request(http.MethodGet, "/version", tokens[user], "")); got != code {
					err = fmt.Errorf("%s is answered %d %.200s, want %d", key, got, body, code)
					continue
				}
				refused[key] = true
				table.note(user, "new request", d.name, time.Now())
			}
		}
		return err
	})
}

// oldAgent is a process with an agent's certificate that goes on whatever the hub
// does, and a user's streams.
type oldAgent struct {
	why, cluster string
	// anonymous is true for one of a time in which certificates held no UID.
	anonymous bool
	withdraw  func(t *testing.T, cluster string)
	// refusal is what it is told in the end.
	refusal string

	// again starts another process with the certificate.
	again   func()
	streams []*openStream
}

// testRevokedAgents takes from agents what they live on, while they go on.
func (s *Suite) testRevokedAgents(t *testing.T) {
	agents := []*oldAgent{
		{why: "hubAcceptsClient false", refusal: "is not accepted by the hub", cluster: "revoked-accepted", withdraw: s.unaccept},
		{why: "addon removed", refusal: "the addon", cluster: "revoked-addon", withdraw: s.removeAddon},
		{why: "ManagedCluster deleted", refusal: "there is no managed cluster", cluster: "revoked-deleted", withdraw: s.removeCluster},
		{why: "made again", refusal: "certificate was issued for UID", cluster: "revoked-again", withdraw: s.remakeCluster},
		{why: "made again, no UID", refusal: "was created after the agent", cluster: "revoked-again-old", withdraw: s.remakeCluster, anonymous: true},
	}
	const user = "revoked-agents"
	s.mayDoAllOn(t, s.attacker(), user)
	var clusters []string
	for _, a := range agents {
		clusters = append(clusters, a.cluster)
	}
	token := s.hubUser(t, user, suite.MayReach(suite.AllVerbs, clusters...), mayStream(clusters...))
	for _, a := range agents {
		s.startOld(t, a, token)
	}
	n := s.watch(t, proxyServer, `cluster_proxy_server_connections_ended_total{reason="cluster"}`)
	table := newCutOff(t)
	for _, a := range agents {
		table.begin(a.why, cutOffWithin)
		a.withdraw(t, a.cluster)
	}
	for _, a := range agents {
		table.wait(a.streams)
		n.check(t, float64(len(agents)), "Connections ended", `cluster="`+a.cluster+`"`, `reason="cluster"`)
	}
	t.Logf("until everything through agents that go on ended:\n%s", table)
	rejected := s.watch(t, proxyServer, `cluster_proxy_server_agents_rejected_total{reason="cluster"}`)
	for _, a := range agents {
		// Those processes come again by themselves.
		rejected.check(t, float64(len(agents)), "Agent rejected", `cluster="`+a.cluster+`"`, `reason="cluster"`, a.refusal)
		s.neverAnswered(t, a, token)
	}
	s.returns(t, agents[3], token)
}

// startOld makes a cluster and starts its agents. Where they lead is the attacker's
// kube-apiserver.
func (s *Suite) startOld(t *testing.T, a *oldAgent, token string) {
	t.Helper()
	s.makeCluster(t, a.cluster, true)
	process, pair := s.agentOf(t, a.cluster, a.anonymous)
	endpoints := s.endpoints(t, a.cluster)
	for _, d := range endpoints {
		process.Await(t, a.cluster+" to answer at "+d.name, func() error {
			if code, _, body := d.send(t, d.request(http.MethodGet, "/version", token, "")); code != http.StatusOK {
				return fmt.Errorf("%d %.300s", code, body)
			}
			return nil
		})
		a.streams = append(a.streams, s.openAll(t, d, a.why, a.cluster, token)...)
	}
	a.again = func() { s.agent(t, a.cluster, pair) }
}

// agentOf starts an agent with a certificate for the ManagedCluster that has that
// name now.
func (s *Suite) agentOf(t *testing.T, cluster string, anonymous bool) (*program.Program, pki.KeyPair) {
	t.Helper()
	leaf := pki.Leaf{
		CommonName: identity.AgentCommonName(cluster), Organizations: identity.AgentOrganizations(cluster),
		DNSNames: []string{identity.HandlerHost(cluster)}, Client: true, Server: true, Validity: 24 * time.Hour,
	}
	if !anonymous {
		object, err := s.ManagedClusters.Get(t.Context(), cluster, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		leaf.OrganizationalUnits = []string{identity.ClusterUnit(string(object.GetUID()))}
	}
	pair, err := s.agentCA(t).Issue(leaf, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return s.agent(t, cluster, pair), pair
}

func (s *Suite) patchCluster(t *testing.T, cluster, patch string) {
	t.Helper()
	if _, err := s.ManagedClusters.Patch(t.Context(), cluster, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *Suite) unaccept(t *testing.T, cluster string) {
	t.Helper()
	s.patchCluster(t, cluster, `{"spec":{"hubAcceptsClient":false}}`)
}

// removeAddon deletes the addon and keeps the lab's Placement from making it again.
func (s *Suite) removeAddon(t *testing.T, cluster string) {
	t.Helper()
	s.patchCluster(t, cluster, `{"spec":{"taints":[{"key":"revoked","effect":"NoSelect"}]}}`)
	err := s.Addons.AddonV1alpha1().ManagedClusterAddOns(cluster).Delete(t.Context(), identity.AddonName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (s *Suite) removeCluster(t *testing.T, cluster string) {
	t.Helper()
	if err := s.ManagedClusters.Delete(t.Context(), cluster, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// remakeCluster puts another cluster in the place of one.
func (s *Suite) remakeCluster(t *testing.T, cluster string) {
	t.Helper()
	s.removeCluster(t, cluster)
	suite.Eventually(t, cluster+" to be gone", func() error {
		object, err := s.ManagedClusters.Get(t.Context(), cluster, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is there, with finalizers %q", object.GetFinalizers())
		}
		return err
	})
	s.makeCluster(t, cluster, true)
}

// neverAnswered asks a cluster whose agents still run, by every endpoint.
func (s *Suite) neverAnswered(t *testing.T, a *oldAgent, token string) {
	t.Helper()
	mark := a.cluster + "-late-" + fmt.Sprint(time.Now().UnixNano())
	for _, d := range s.endpoints(t, a.cluster) {
		code, _, body := d.send(t, d.request(http.MethodGet, "/version", token, "", "Audit-ID: "+mark))
		if code != http.StatusNotFound && code != http.StatusServiceUnavailable {
			t.Errorf("%s: a request at %s is answered %d %.300s, want 404 or 503", a.why, d.name, code, body)
		}
	}
	s.neverSaw(t, s.attacker(), mark)
}

// returns has an agent with a new certificate come to a cluster that was made again,
// beside the one with the old certificate.
func (s *Suite) returns(t *testing.T, a *oldAgent, token string) {
	t.Helper()
	process, _ := s.agentOf(t, a.cluster, false)
	d := s.endpoints(t, a.cluster)[0]
	process.Await(t, "the new agent of "+a.cluster+" to serve", func() error {
		if code, _, body := d.send(t, d.request(http.MethodGet, "/version", token, "")); code != http.StatusOK {
			return fmt.Errorf("%d %.300s", code, body)
		}
		return nil
	})
	rejected := s.watch(t, proxyServer, `cluster_proxy_server_agents_rejected_total{reason="cluster"}`)
	a.again()
	rejected.check(t, 1, "Agent rejected", `cluster="`+a.cluster+`"`, `reason="cluster"`, a.refusal)
}
