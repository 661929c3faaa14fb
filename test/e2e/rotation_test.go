package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	hubSigner, agentSigner = "cluster-proxy-signer", "cluster-proxy-agent-signer"
	hubBundle, agentBundle = "proxy-server-ca", "cluster-proxy-agent-ca"
	agentCertificate       = "cluster-proxy-open-cluster-management.io-proxy-agent-signer-client-cert"
)

// hubLeaves are the certificates on the hub.
var hubLeaves = []string{"proxy-server", "agent-server", "proxy-client", "cluster-proxy-api-client", "cluster-proxy-user-serving-cert"}

func hubSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	return suite.hub.CoreV1().Secrets(suite.namespace).Get(ctx, name, metav1.GetOptions{})
}

func mustHubSecret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := hubSecret(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// condition is one of the configuration's.
func condition(ctx context.Context, kind string) (metav1.Condition, error) {
	object, err := suite.configuration.Get(ctx, identity.AddonName, metav1.GetOptions{})
	if err != nil {
		return metav1.Condition{}, err
	}
	raw, err := json.Marshal(object.Object["status"])
	if err != nil {
		return metav1.Condition{}, err
	}
	var status struct{ Conditions []metav1.Condition }
	if err := json.Unmarshal(raw, &status); err != nil {
		return metav1.Condition{}, err
	}
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c, nil
		}
	}
	return metav1.Condition{}, fmt.Errorf("condition %s is not set", kind)
}

func wantCondition(t *testing.T, kind, reason, message string) {
	t.Helper()
	eventually(t, fmt.Sprintf("condition %s to be %s %s", kind, reason, message), func() error {
		c, err := condition(t.Context(), kind)
		if err == nil && (c.Reason != reason || !strings.Contains(c.Message, message)) {
			err = fmt.Errorf("it is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		return err
	})
}

// rotationTraffic are connections that carry requests until stopped, and fail the test
// if one of them ends or an answer differs.
type rotationTraffic struct {
	dials, requests atomic.Int64
	stop            context.CancelFunc
	wg              sync.WaitGroup
	mu              sync.Mutex
	failures        []error
}

// startRotationTraffic opens connections to a cluster: half of them end to end through
// the tunnel, half through the proxy API. Each is used without a pause.
func startRotationTraffic(t *testing.T, cluster string, connections int) *rotationTraffic {
	t.Helper()
	want := bytes.Repeat([]byte("0123456789abcdef"), 8<<10)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "rotation"}, BinaryData: map[string][]byte{"data": want}}
	managed := clientset(t, suite.direct(cluster)).CoreV1().ConfigMaps("default")
	if _, err := managed.Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = managed.Delete(context.Background(), "rotation", metav1.DeleteOptions{}) })
	ctx, stop := context.WithCancel(t.Context())
	traffic := &rotationTraffic{stop: stop}
	dialer := suite.dialer(t)
	for i := range connections {
		root, dial := suite.clusterCA(cluster), dialer.DialContext
		url, name := "https://"+cluster, "kubernetes.default.svc"
		var dialed atomic.Bool
		if i%2 == 1 {
			root, dial = suite.hubCA, new(net.Dialer).DialContext
			url, name = "https://"+suite.proxyAPI+"/"+cluster, ""
		}
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool(t, root), ServerName: name, NextProtos: []string{"http/1.1"}},
			MaxConnsPerHost: 1,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				traffic.dials.Add(1)
				if dialed.Swap(true) {
					traffic.fail(fmt.Errorf("connection %d, to %s, is dialed again at %s", i, url, time.Now().Format(time.TimeOnly)))
				}
				return dial(ctx, network, address)
			},
		}}
		traffic.wg.Go(func() {
			for ctx.Err() == nil {
				if err := traffic.request(ctx, client, url, suite.adminToken[cluster], want); err != nil && ctx.Err() == nil {
					traffic.fail(fmt.Errorf("connection %d: %w", i, err))
					return
				}
			}
		})
	}
	return traffic
}

func (c *rotationTraffic) request(ctx context.Context, client *http.Client, url, token string, want []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/namespaces/default/configmaps/rotation", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var got corev1.ConfigMap
	if err := json.Unmarshal(raw, &got); err != nil || !bytes.Equal(got.BinaryData["data"], want) {
		return fmt.Errorf("answered %d, and not what is there: %v", response.StatusCode, err)
	}
	c.requests.Add(1)
	// One request and the next one of all connections are some time apart, so
	// that what is tested has a processor too.
	select {
	case <-ctx.Done():
	case <-time.After(250 * time.Millisecond):
	}
	return nil
}

func (c *rotationTraffic) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, err)
}

// check stops the traffic and reports what went wrong.
func (c *rotationTraffic) check(t *testing.T, connections int) {
	t.Helper()
	c.stop()
	c.wg.Wait()
	for _, err := range c.failures {
		t.Error(err)
	}
	if dials := c.dials.Load(); dials != int64(connections) {
		t.Errorf("%d connections were dialed %d times: some of them were dropped", connections, dials)
	}
	t.Logf("%d answers on %d connections", c.requests.Load(), connections)
	if c.requests.Load() < int64(10*connections) {
		t.Errorf("%d connections carried %d answers only", connections, c.requests.Load())
	}
}

func pool(t *testing.T, bundle []byte) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		t.Fatal("no certificate in a bundle")
	}
	return pool
}

// certificates are all leaves, by a name for messages.
func certificates(ctx context.Context, t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, name := range hubLeaves {
		out[name] = mustHubSecret(t, name).Data["tls.crt"]
	}
	for _, cluster := range suite.clusters {
		secret, err := clientset(t, suite.direct(cluster)).CoreV1().Secrets(suite.agentNamespace).Get(ctx, agentCertificate, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out[cluster+"'s agent"] = secret.Data["tls.crt"]
	}
	return out
}

// checkChains verifies each leaf with the bundle that is its own, and with the
// other one, which must refuse it.
func checkChains(t *testing.T, leaves map[string][]byte) {
	t.Helper()
	own, other := mustHubSecret(t, hubBundle).Data["ca.crt"], mustHubSecret(t, agentBundle).Data["ca.crt"]
	for name, data := range leaves {
		right, wrong := own, other
		if strings.HasSuffix(name, "'s agent") {
			right, wrong = other, own
		}
		block, _ := pem.Decode(data)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		usages := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, right), KeyUsages: usages}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, wrong), KeyUsages: usages}); err == nil {
			t.Errorf("%s is trusted as if it were of the other CA", name)
		}
	}
}

// wantOthers waits until every leaf is another one than before.
func wantOthers(t *testing.T, before map[string][]byte) map[string][]byte {
	t.Helper()
	eventually(t, "every certificate issued again", func() error {
		for name, data := range certificates(context.Background(), t) {
			if bytes.Equal(data, before[name]) {
				return fmt.Errorf("%s still has its old one", name)
			}
		}
		return nil
	})
	return certificates(t.Context(), t)
}

// serves waits until what listens at address shows the leaf of a Secret, without
// having been started again.
func serves(t *testing.T, address, secret string) {
	t.Helper()
	eventually(t, address+" to show the certificate of "+secret, func() error {
		want, err := hubSecret(t.Context(), secret)
		if err != nil {
			return err
		}
		bundle, err := hubSecret(t.Context(), hubBundle)
		if err != nil {
			return err
		}
		var shown []byte
		config := &tls.Config{RootCAs: pool(t, bundle.Data["ca.crt"]), ServerName: "127.0.0.1", VerifyConnection: func(state tls.ConnectionState) error {
			shown = state.PeerCertificates[0].Raw
			return nil
		}}
		conn, err := tls.Dial("tcp", address, config)
		if err == nil {
			_ = conn.Close()
		}
		block, _ := pem.Decode(want.Data["tls.crt"])
		if !bytes.Equal(shown, block.Bytes) {
			return fmt.Errorf("another one is shown: %v", err)
		}
		return nil
	})
}

// rotateCAs asks for a rotation of both CAs.
func rotateCAs(t *testing.T, request string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"proxy.open-cluster-management.io/rotate-ca":%q}}}`, request)
	if _, err := suite.configuration.Patch(t.Context(), identity.AddonName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func wantStable(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"HubCARotating", "AgentCARotating"} {
		wantCondition(t, kind, "Stable", "Expiry:")
	}
	suite.hubCA = mustHubSecret(t, hubBundle).Data["ca.crt"]
}

// TestRotation changes every certificate that there is, leaves and both CAs,
// while connections are used, and keeps one cluster away for a while.
func TestRotation(t *testing.T) {
	if len(suite.clusters) < 2 || onNodes {
		t.Skip("needs two managed clusters, and kubelets that take seconds and not minutes to hand on a Secret")
	}
	const connections = 50
	here, away := suite.clusters[0], suite.clusters[1]
	wantStable(t)
	awaitPods(t, here)
	stale := suite.clientTLS(t)
	traffic := startRotationTraffic(t, here, connections)
	t.Cleanup(traffic.stop)
	before := certificates(t.Context(), t)
	checkChains(t, before)
	cas := map[string][]byte{hubBundle: mustHubSecret(t, hubSigner).Data["ca.crt"], agentBundle: mustHubSecret(t, agentSigner).Data["ca.crt"]}

	suite.stopAgents(t, away)
	rotateCAs(t, time.Now().UTC().Format(time.RFC3339Nano))
	wantCondition(t, "HubCARotating", "Distributing", "waits for clusters "+away)
	wantCondition(t, "AgentCARotating", "Reissuing", "waits for clusters "+away)
	for bundle, old := range cas {
		if now := mustHubSecret(t, bundle).Data["ca.crt"]; !bytes.Contains(now, old) || bytes.Count(now, []byte("BEGIN")) != 2 {
			t.Errorf("bundle %s does not hold the old CA and the new one", bundle)
		}
	}
	if got := mustHubSecret(t, "agent-server").Data["tls.crt"]; !bytes.Equal(got, before["agent-server"]) {
		t.Error("the next hub CA signs while a cluster does not trust it")
	}

	suite.startAgents(t, away)
	wantStable(t)
	for bundle, old := range cas {
		if now := mustHubSecret(t, bundle).Data["ca.crt"]; bytes.Contains(now, old) || bytes.Count(now, []byte("BEGIN")) != 1 {
			t.Errorf("bundle %s still holds the old CA, or more than one", bundle)
		}
	}
	after := wantOthers(t, before)
	checkChains(t, after)
	for _, cluster := range suite.clusters {
		eventually(t, cluster+" reachable", func() error { return reachable(t.Context(), cluster) })
	}
	serves(t, suite.proxyServer, "proxy-server")
	serves(t, suite.proxyAPI, "cluster-proxy-user-serving-cert")
	stale.RootCAs = pool(t, suite.hubCA)
	eventually(t, "a certificate of the old CA to be refused", func() error { return refused(t.Context(), stale) })

	rotateLeaves(t)
	checkChains(t, wantOthers(t, after))
	serves(t, suite.proxyServer, "proxy-server")
	serves(t, suite.proxyAPI, "cluster-proxy-user-serving-cert")
	for _, cluster := range suite.clusters {
		eventually(t, cluster+" reachable", func() error { return reachable(t.Context(), cluster) })
	}
	traffic.check(t, connections)
	wantRotationEvents(t)
}

// refused has no error if the proxy server refuses a client's certificate.
func refused(ctx context.Context, config *tls.Config) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", suite.proxyServer)
	if err != nil {
		return err
	}
	err = pki.ProveHTTP2(ctx, conn, config)
	if err == nil {
		return fmt.Errorf("it is accepted")
	}
	if !strings.Contains(err.Error(), "unknown certificate authority") && !strings.Contains(err.Error(), "bad certificate") {
		return err
	}
	return nil
}

// rotateLeaves takes every leaf away; who keeps it issues another one.
func rotateLeaves(t *testing.T) {
	t.Helper()
	for _, name := range hubLeaves {
		if err := suite.hub.CoreV1().Secrets(suite.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, cluster := range suite.clusters {
		if err := clientset(t, suite.direct(cluster)).CoreV1().Secrets(suite.agentNamespace).Delete(t.Context(), agentCertificate, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "every certificate there again", func() error {
		for _, name := range hubLeaves {
			if _, err := hubSecret(t.Context(), name); err != nil {
				return err
			}
		}
		for _, cluster := range suite.clusters {
			secret, err := clientset(t, suite.direct(cluster)).CoreV1().Secrets(suite.agentNamespace).Get(t.Context(), agentCertificate, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(secret.Data["tls.crt"]) == 0 {
				return fmt.Errorf("%s's agent has none yet", cluster)
			}
		}
		return nil
	})
}

// wantRotationEvents looks for an event of each phase of each CA.
func wantRotationEvents(t *testing.T) {
	t.Helper()
	missing := map[string]bool{}
	for _, ca := range []string{"hub CA", "agent CA"} {
		for _, phase := range []string{"Distributing", "Reissuing", "Stable"} {
			missing[fmt.Sprintf("The %s is now in phase %s", ca, phase)] = true
		}
	}
	eventually(t, "events of every phase", func() error {
		list, err := suite.hub.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := maps.Clone(missing)
		for _, event := range list.Items {
			for text := range missing {
				if strings.HasPrefix(event.Note, text) {
					delete(left, text)
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("none for %v", left)
		}
		return nil
	})
}

// TestRestoredHub puts the CAs back as they were before a rotation, as a restore
// of an old backup does. Every cluster is told of them, and nobody joins again.
func TestRestoredHub(t *testing.T) {
	if onNodes {
		t.Skip("needs kubelets that take seconds and not minutes to hand on a Secret")
	}
	wantStable(t)
	backup := []*corev1.Secret{mustHubSecret(t, hubSigner), mustHubSecret(t, agentSigner)}
	rotateCAs(t, "before the restore")
	for i, bundle := range []string{hubBundle, agentBundle} {
		eventually(t, bundle+" to hold another CA only", func() error {
			secret, err := hubSecret(t.Context(), bundle)
			if err == nil && bytes.Contains(secret.Data["ca.crt"], backup[i].Data["ca.crt"]) {
				err = fmt.Errorf("it still holds the one before")
			}
			return err
		})
	}
	for _, old := range backup {
		secrets := suite.hub.CoreV1().Secrets(suite.namespace)
		if err := secrets.Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		restored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, Annotations: old.Annotations}, Type: old.Type, Data: old.Data}
		// Where the manager was faster, it has made a CA that nobody needs.
		eventually(t, old.Name+" restored", func() error {
			_, err := secrets.Create(t.Context(), restored, metav1.CreateOptions{})
			if err != nil {
				_ = secrets.Delete(t.Context(), old.Name, metav1.DeleteOptions{})
			}
			return err
		})
	}
	// The request for the rotation is older than what was restored knows, so it
	// is honoured again; what matters is that it comes to its end.
	eventually(t, "the restored CAs, or what followed them, in use", func() error {
		for i, name := range []string{hubSigner, agentSigner} {
			secret, err := hubSecret(t.Context(), name)
			if err != nil {
				return err
			}
			if bytes.Equal(secret.Data["ca.crt"], backup[i].Data["ca.crt"]) {
				return fmt.Errorf("%s is not through with its rotation", name)
			}
		}
		return nil
	})
	wantStable(t)
	for _, cluster := range suite.clusters {
		eventually(t, cluster+" reachable", func() error { return reachable(t.Context(), cluster) })
		eventually(t, cluster+" Available", func() error { return addonAvailable(t.Context(), cluster) })
	}
	checkChains(t, certificates(t.Context(), t))
}
