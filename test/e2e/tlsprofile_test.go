package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// listener is one of ours, and how to speak TLS with it.
type listener struct {
	name string
	dial func(context.Context) (net.Conn, error)
	tls  *tls.Config
}

func at(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
}

// listeners are all that speak TLS: three on the hub, and the agents' handlers.
func listeners(t *testing.T) []listener {
	t.Helper()
	hub := installed.ClientTLS(t)
	agent := installed.ClientTLS(t)
	list := []listener{
		{"proxy API", at(installed.ProxyAPI), hub},
		{"client port", at(installed.ProxyServer), hub},
		{"agent port", at(fmt.Sprint("127.0.0.1:", installed.Lab.AgentPort)), agent},
	}
	for _, cluster := range installed.Clusters {
		cs := suite.Clientset(t, installed.Direct(cluster))
		secret, err := cs.CoreV1().Secrets(installed.AgentNamespace).Get(t.Context(), identity.AgentCertificateSecret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		agent.Certificates = []tls.Certificate{certificate}
		host := identity.HandlerHost(cluster)
		handler := installed.ClientTLS(t)
		handler.RootCAs, handler.ServerName = suite.Pool(t, installed.MustHubSecret(t, suite.AgentBundle).Data["ca.crt"]), host
		dialer := installed.Dialer(t)
		list = append(list, listener{"agent of " + cluster, func(ctx context.Context) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, identity.HandlerPort))
		}, handler})
	}
	return list
}

// speaks reports whether a listener speaks a version of TLS.
func (l listener) speaks(ctx context.Context, version uint16) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, suite.Timeout)
	defer cancel()
	raw, err := l.dial(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.name, err)
	}
	defer raw.Close()
	config := l.tls.Clone()
	config.MinVersion, config.MaxVersion = version, version
	err = tls.Client(raw, config).HandshakeContext(ctx)
	if err != nil && strings.Contains(err.Error(), "protocol version not supported") {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.name, err)
	}
	return true, nil
}

// wantTLS12 waits until every listener speaks TLS 1.2, or none does; all speak
// 1.3 at all times.
func wantTLS12(t *testing.T, want bool) {
	t.Helper()
	for _, l := range listeners(t) {
		suite.Eventually(t, fmt.Sprintf("TLS 1.2 at the %s to be %v", l.name, want), func() error {
			if newest, err := l.speaks(t.Context(), tls.VersionTLS13); err != nil || !newest {
				return fmt.Errorf("TLS 1.3: %v, %w", newest, err)
			}
			got, err := l.speaks(t.Context(), tls.VersionTLS12)
			if err == nil && got != want {
				err = fmt.Errorf("it is %v", got)
			}
			return err
		})
	}
}

// TestTLSProfile has every listener, on the hub and on managed clusters, follow
// OCM's TLS profile as it comes, changes and goes, without a restart. It disturbs
// all clusters: listeners refuse old clients for a while.
func TestTLSProfile(t *testing.T) {
	long.Test(t)
	installed.NeedLab(t, "dials ports of pods and reads logs")
	if onNodes {
		t.Skip("needs kubelets that take seconds and not minutes to hand on a ConfigMap")
	}
	places := map[string]struct {
		cs        *kubernetes.Clientset
		namespace string
	}{"hub": {installed.Hub, installed.Namespace}}
	for _, cluster := range installed.Clusters {
		places[cluster] = struct {
			cs        *kubernetes.Clientset
			namespace string
		}{suite.Clientset(t, installed.Direct(cluster)), installed.AgentNamespace}
	}
	// restarts are those of containers, by place, pod and name.
	restarts := func() map[string]int32 {
		all := map[string]int32{}
		for name, place := range places {
			list, err := place.cs.CoreV1().Pods(place.namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, pod := range list.Items {
				for _, status := range pod.Status.ContainerStatuses {
					all[fmt.Sprint(name, " ", pod.Name, " ", status.Name)] = status.RestartCount
				}
			}
		}
		return all
	}
	remove := func(ctx context.Context) {
		for name, place := range places {
			if err := place.cs.CoreV1().ConfigMaps(place.namespace).Delete(ctx, identity.TLSProfile, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// profile changes the ConfigMap in place: a listener that saw it gone in between would
	// go back to its default.
	profile := func(version string) {
		t.Helper()
		wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: identity.TLSProfile}, Data: map[string]string{"minTLSVersion": version}}
		for name, place := range places {
			_, err := place.cs.CoreV1().ConfigMaps(place.namespace).Update(t.Context(), wanted, metav1.UpdateOptions{})
			if apierrors.IsNotFound(err) {
				_, err = place.cs.CoreV1().ConfigMaps(place.namespace).Create(t.Context(), wanted, metav1.CreateOptions{})
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	t.Cleanup(func() { remove(context.Background()) })
	before := restarts()
	wantTLS12(t, false)
	profile("VersionTLS12")
	wantTLS12(t, true)
	profile("VersionTLS13")
	wantTLS12(t, false)
	profile("VersionTLS12")
	wantTLS12(t, true)
	profile("VersionTLS99") // a mistake leaves what is in use, and is said
	for _, component := range []string{"hub_*_proxy-server.log", "hub_*_user-server.log", "cluster1_*_proxy-agent.log", "2nd-cluster_*_proxy-agent.log"} {
		suite.Eventually(t, component+" to say what is wrong", func() error {
			files, err := filepath.Glob(filepath.Join(installed.Lab.LogDir(), component))
			for _, file := range files {
				content, err := os.ReadFile(file)
				if err != nil || strings.Contains(string(content), `minTLSVersion is \"VersionTLS99\"`) {
					return err
				}
			}
			return errors.Join(err, fmt.Errorf("nothing in %q", files))
		})
	}
	wantTLS12(t, true)
	remove(t.Context())
	wantTLS12(t, false)
	for _, cluster := range installed.Clusters {
		suite.Eventually(t, cluster+" reachable", func() error { return installed.Reachable(t.Context(), cluster) })
	}
	// A rollout of the test before this one may still replace some.
	after, same := restarts(), 0
	for container, n := range after {
		if was, ok := before[container]; ok {
			same++
			if n != was {
				t.Errorf("%s was restarted %d times, want never", container, n-was)
			}
		}
	}
	if same == 0 {
		t.Error("no pod is the same as before")
	}
}
