package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
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
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

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
	managed := suite.Clientset(t, installed.Direct(cluster)).CoreV1().ConfigMaps("default")
	if _, err := managed.Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = managed.Delete(context.Background(), "rotation", metav1.DeleteOptions{}) })
	ctx, stop := context.WithCancel(t.Context())
	traffic := &rotationTraffic{stop: stop}
	dialer := installed.Dialer(t)
	for i := range connections {
		root, dial := installed.ClusterCA(cluster), dialer.DialContext
		url, name := "https://"+cluster, "kubernetes.default.svc"
		var dialed atomic.Bool
		if i%2 == 1 {
			root, dial = installed.HubCA, new(net.Dialer).DialContext
			url, name = "https://"+installed.ProxyAPI+"/"+cluster, ""
		}
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: suite.Pool(t, root), ServerName: name, NextProtos: []string{"http/1.1"}},
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
				if err := traffic.request(ctx, client, url, installed.AdminToken[cluster], want); err != nil && ctx.Err() == nil {
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
		return fmt.Errorf("answered %d, and not what is there: %v, %.300s", response.StatusCode, err, raw)
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
		t.Errorf("%d connections carried %d answers only, want %d at least", connections, c.requests.Load(), 10*connections)
	}
}

// wantOthers waits until every leaf is another one than before.
func wantOthers(t *testing.T, before map[string][]byte) map[string][]byte {
	t.Helper()
	suite.Eventually(t, "every certificate issued again", func() error {
		for name, data := range installed.Certificates(context.Background(), t) {
			if bytes.Equal(data, before[name]) {
				return fmt.Errorf("%s still has its old one", name)
			}
		}
		return nil
	})
	return installed.Certificates(t.Context(), t)
}

// serves waits until what listens at address shows the leaf of a Secret, without
// having been started again.
func serves(t *testing.T, address, secret string) {
	t.Helper()
	suite.Eventually(t, address+" to show the certificate of "+secret, func() error {
		want, err := installed.HubSecret(t.Context(), secret)
		if err != nil {
			return err
		}
		bundle, err := installed.HubSecret(t.Context(), suite.HubBundle)
		if err != nil {
			return err
		}
		var shown []byte
		config := &tls.Config{RootCAs: suite.Pool(t, bundle.Data["ca.crt"]), ServerName: "127.0.0.1", VerifyConnection: func(state tls.ConnectionState) error {
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
	if _, err := installed.Configuration.Patch(t.Context(), identity.AddonName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestRotation changes every certificate that there is, leaves and both CAs,
// while connections are used, and keeps one cluster away for a while. It disturbs
// all clusters: every certificate is issued again, and one cluster is away for a
// while.
func TestRotation(t *testing.T) {
	long.Test(t)
	installed.NeedLab(t, "needs kubelets that hand on a Secret in seconds")
	if len(installed.Clusters) < 2 || onNodes {
		t.Skip("needs two managed clusters, and kubelets that take seconds and not minutes to hand on a Secret")
	}
	const connections = 50
	here, away := installed.Clusters[0], installed.Clusters[1]
	installed.WantStable(t)
	installed.AwaitPods(t, here)
	stale := installed.ClientTLS(t)
	traffic := startRotationTraffic(t, here, connections)
	t.Cleanup(traffic.stop)
	before := installed.Certificates(t.Context(), t)
	installed.CheckChains(t, before)
	cas := map[string][]byte{suite.HubBundle: installed.MustHubSecret(t, suite.HubSigner).Data["ca.crt"], suite.AgentBundle: installed.MustHubSecret(t, suite.AgentSigner).Data["ca.crt"]}

	installed.StopAgents(t, away)
	rotateCAs(t, time.Now().UTC().Format(time.RFC3339Nano))
	installed.WantCondition(t, "HubCARotating", "Distributing", "waits for clusters "+away)
	installed.WantCondition(t, "AgentCARotating", "Reissuing", "waits for clusters "+away)
	for bundle, old := range cas {
		if now := installed.MustHubSecret(t, bundle).Data["ca.crt"]; !bytes.Contains(now, old) || bytes.Count(now, []byte("BEGIN")) != 2 {
			t.Errorf("bundle %s does not hold the old CA and the new one", bundle)
		}
	}
	if got := installed.MustHubSecret(t, "agent-server").Data["tls.crt"]; !bytes.Equal(got, before["agent-server"]) {
		t.Error("the next hub CA signs while a cluster does not trust it")
	}

	installed.StartAgents(t, away)
	installed.WantStable(t)
	for bundle, old := range cas {
		if now := installed.MustHubSecret(t, bundle).Data["ca.crt"]; bytes.Contains(now, old) || bytes.Count(now, []byte("BEGIN")) != 1 {
			t.Errorf("bundle %s still holds the old CA, or more than one", bundle)
		}
	}
	after := wantOthers(t, before)
	installed.CheckChains(t, after)
	for _, cluster := range installed.Clusters {
		suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(t.Context(), cluster) })
	}
	serves(t, installed.ProxyServer, "proxy-server")
	serves(t, installed.ProxyAPI, "cluster-proxy-user-serving-cert")
	stale.RootCAs = suite.Pool(t, installed.HubCA)
	suite.Eventually(t, "a certificate of the old CA to be refused", func() error { return refused(t.Context(), stale) })

	rotateLeaves(t)
	installed.CheckChains(t, wantOthers(t, after))
	serves(t, installed.ProxyServer, "proxy-server")
	serves(t, installed.ProxyAPI, "cluster-proxy-user-serving-cert")
	for _, cluster := range installed.Clusters {
		suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(t.Context(), cluster) })
	}
	traffic.check(t, connections)
	wantRotationEvents(t)
}

// refused has no error if the proxy server refuses a client's certificate.
func refused(ctx context.Context, config *tls.Config) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", installed.ProxyServer)
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
	for _, name := range suite.HubLeaves {
		if err := installed.Hub.CoreV1().Secrets(installed.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, cluster := range installed.Clusters {
		if err := suite.Clientset(t, installed.Direct(cluster)).CoreV1().Secrets(installed.AgentNamespace).Delete(t.Context(), identity.AgentCertificateSecret, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	suite.Eventually(t, "every certificate there again", func() error {
		for _, name := range suite.HubLeaves {
			if _, err := installed.HubSecret(t.Context(), name); err != nil {
				return err
			}
		}
		for _, cluster := range installed.Clusters {
			secret, err := suite.Clientset(t, installed.Direct(cluster)).CoreV1().Secrets(installed.AgentNamespace).Get(t.Context(), identity.AgentCertificateSecret, metav1.GetOptions{})
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
	suite.Eventually(t, "events of every phase", func() error {
		list, err := installed.Hub.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
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
// It disturbs all clusters: every certificate is issued again.
func TestRestoredHub(t *testing.T) {
	long.Test(t)
	installed.NeedLab(t, "needs kubelets that hand on a Secret in seconds")
	if onNodes {
		t.Skip("needs kubelets that take seconds and not minutes to hand on a Secret")
	}
	installed.WantStable(t)
	backup := []*corev1.Secret{installed.MustHubSecret(t, suite.HubSigner), installed.MustHubSecret(t, suite.AgentSigner)}
	rotateCAs(t, "before the restore")
	for i, bundle := range []string{suite.HubBundle, suite.AgentBundle} {
		suite.Eventually(t, bundle+" to hold another CA only", func() error {
			secret, err := installed.HubSecret(t.Context(), bundle)
			if err == nil && bytes.Contains(secret.Data["ca.crt"], backup[i].Data["ca.crt"]) {
				err = fmt.Errorf("it still holds the one before")
			}
			return err
		})
	}
	for _, old := range backup {
		secrets := installed.Hub.CoreV1().Secrets(installed.Namespace)
		if err := secrets.Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		restored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels, Annotations: old.Annotations}, Type: old.Type, Data: old.Data}
		// Where the manager was faster, it has made a CA that nobody needs.
		suite.Eventually(t, old.Name+" restored", func() error {
			_, err := secrets.Create(t.Context(), restored, metav1.CreateOptions{})
			if err != nil {
				_ = secrets.Delete(t.Context(), old.Name, metav1.DeleteOptions{})
			}
			return err
		})
	}
	// The request for the rotation is older than what was restored knows, so it
	// is honoured again; what matters is that it comes to its end.
	suite.Eventually(t, "the restored CAs, or what followed them, in use", func() error {
		for i, name := range []string{suite.HubSigner, suite.AgentSigner} {
			secret, err := installed.HubSecret(t.Context(), name)
			if err != nil {
				return err
			}
			if bytes.Equal(secret.Data["ca.crt"], backup[i].Data["ca.crt"]) {
				return fmt.Errorf("%s is not through with its rotation", name)
			}
		}
		return nil
	})
	installed.WantStable(t)
	for _, cluster := range installed.Clusters {
		suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(t.Context(), cluster) })
		suite.Eventually(t, cluster+" Available", func() error { return installed.AddonAvailable(t.Context(), cluster) })
	}
	installed.CheckChains(t, installed.Certificates(t.Context(), t))
}
