package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

func addNobody(t *testing.T) (end func()) {
	t.Helper()
	client, err := clusterclient.NewForConfig(installed.HubConfig())
	if err != nil {
		t.Fatal(err)
	}
	clusters := client.ClusterV1().ManagedClusters()
	names := []string{"nobody1", "nobody2", "nobody3"}
	end = func() {
		for _, name := range names {
			_ = installed.Addons.AddonV1alpha1().ManagedClusterAddOns(name).Delete(context.Background(), identity.AddonName, metav1.DeleteOptions{})
			_ = clusters.Delete(context.Background(), name, metav1.DeleteOptions{})
		}
	}
	t.Cleanup(end)
	for _, name := range names {
		if _, err := clusters.Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		suite.Eventually(t, "the addon of "+name, func() error {
			_, err := installed.Addons.AddonV1alpha1().ManagedClusterAddOns(name).Create(t.Context(), &addonv1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: identity.AddonName, Namespace: name}}, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // OCM installs it on all clusters
				return nil
			}
			return err
		})
	}
	return end
}

func declareAnother(t *testing.T) (end func()) {
	t.Helper()
	from, other := installed.Clusters[0], installed.Clusters[1]
	secret, err := suite.Clientset(t, installed.Direct(from)).CoreV1().Secrets(installed.AgentNamespace).Get(t.Context(), identity.AgentCertificateSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	config := installed.ClientTLS(t)
	config.Certificates, config.GetClientCertificate = []tls.Certificate{certificate}, nil
	config.NextProtos = []string{carrier.ALPN}
	return background(t, 200*time.Millisecond, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", installed.Lab.AgentPort))
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = carrier.DialSession(ctx, conn, carrier.Hello{Session: "another", Identifiers: "host=" + other}, carrier.SessionConfig{}) // it is refused
	})
}

func askForAnother(t *testing.T) (end func()) {
	t.Helper()
	from, other := installed.Clusters[0], installed.Clusters[1]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: identity.AgentCommonName(other), Organization: identity.AgentOrganizations(other)}}, key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := installed.HubConfig()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:open-cluster-management:" + from + ":agent",
		Groups: []string{"system:open-cluster-management:" + from, "system:open-cluster-management:managed-clusters", "system:authenticated"}}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "addon-" + from + "-cluster-proxy-", Labels: map[string]string{clusterv1.ClusterNameLabelKey: from, addonv1alpha1.AddonLabelKey: identity.AddonName}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: identity.AgentSigner, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}},
	}
	made, err := kubernetes.NewForConfigOrDie(cfg).CertificatesV1().CertificateSigningRequests().Create(t.Context(), csr, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = installed.Hub.CertificatesV1().CertificateSigningRequests().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
	}
	t.Cleanup(end)
	return end
}

func dialWithout(t *testing.T) (end func()) {
	config := installed.ClientTLS(t)
	config.Certificates, config.GetClientCertificate = nil, nil
	return background(t, 200*time.Millisecond, func() { noCertificate(config) })
}

// dialAndWait opens more connections to one proxy server, from one source, than may wait
// for their handshakes at a time.
func dialAndWait(t *testing.T) (end func()) {
	t.Helper()
	servers := installed.Kind(t, installed.Clusters[0], "proxy server")
	names, err := servers.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pod, err := servers.Client.CoreV1().Pods(servers.Namespace).Get(t.Context(), names[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address, err := installed.Lab.PodAddress("hub", pod.UID, 8091)
	if err != nil {
		t.Fatal(err)
	}
	const most = 5000
	var open []net.Conn
	stop := background(t, 50*time.Millisecond, func() {
		for range 100 {
			if conn, err := net.Dial("tcp", address); err == nil {
				open = append(open, conn)
			}
		}
		for len(open) > most {
			_ = open[0].Close()
			open = open[1:]
		}
	})
	return func() {
		stop()
		for _, conn := range open {
			_ = conn.Close()
		}
	}
}

func tryTokens(t *testing.T) (end func()) {
	token := wrongToken(t)
	return background(t, 100*time.Millisecond, func() {
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() { _ = token(t.Context()) })
		}
		group.Wait()
	})
}

func breakExposedServices(t *testing.T) (end func()) {
	t.Helper()
	lists := installed.Hub.CoreV1().ConfigMaps(installed.Namespace)
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: agentapi.ExposedServicesConfigMap}, Data: map[string]string{agentapi.ExposedServicesKey: "}{"}}
	if _, err := lists.Create(t.Context(), list, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := lists.Delete(context.Background(), list.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// takeMemory gives the proxy API a memory limit that it has used already.
func takeMemory(t *testing.T) (end func()) {
	t.Helper()
	deployments := installed.Hub.AppsV1().Deployments(installed.Namespace)
	const name = "cluster-proxy-addon-user"
	before, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(ctx context.Context, container corev1.Container) *appsv1.Deployment {
		now, err := deployments.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			now.Spec.Template.Spec.Containers[0] = container
			now, err = deployments.Update(ctx, now, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Error(err)
		}
		return now
	}
	little := *before.Spec.Template.Spec.Containers[0].DeepCopy()
	little.Env = slices.DeleteFunc(little.Env, func(v corev1.EnvVar) bool { return v.Name == "GOMEMLIMIT" })
	little.Env = append(little.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "4MiB"})
	end = func() {
		put(context.Background(), before.Spec.Template.Spec.Containers[0])
		suite.Eventually(t, "the proxy API rolled out", func() error {
			now, err := deployments.Get(context.Background(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return suite.RolledOut(now)
		})
	}
	put(t.Context(), little)
	return end
}

// breakRecordings puts a file where a day's recordings should go, while a user runs commands.
func breakRecordings(t *testing.T) (end func()) {
	t.Helper()
	var files []string
	for _, replica := range proxyAPIReplicas(t) {
		for _, day := range []time.Time{time.Now(), time.Now().Add(24 * time.Hour)} {
			file := filepath.Join(replica.recordings, day.UTC().Format(time.DateOnly))
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	cfg := installed.ThroughProxyAPI(suite.RecordedCluster)
	cfg.BearerToken = installed.HubToken
	command := suite.Executors(t, cfg, "true")["websocket"]
	stop := background(t, 200*time.Millisecond, func() {
		_ = command.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdout: io.Discard, Stderr: io.Discard})
	})
	return func() {
		stop()
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Error(err)
			}
		}
	}
}

// freezeAll stops the processes of a kind without ending them.
func freezeAll(t *testing.T, kind suite.Kind) (thaw func()) {
	t.Helper()
	thaw = func() {
		if err := kind.Signal(context.Background(), syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(thaw)
	if err := kind.Signal(t.Context(), syscall.SIGSTOP); err != nil {
		t.Error(err)
	}
	return thaw
}

func slowAgents(t *testing.T) (end func()) {
	cluster := installed.Clusters[1]
	agents := installed.Kind(t, cluster, "proxy agent")
	cfg := installed.ThroughProxyAPI(cluster)
	cfg.BearerToken = installed.HubToken
	return background(t, 100*time.Millisecond, func() {
		thaw := freezeAll(t, agents)
		var group sync.WaitGroup
		defer group.Wait()
		defer thaw()
		for range 5 {
			group.Go(func() { _ = suite.Once(t.Context(), cfg) })
		}
		<-time.After(2 * time.Second) // which is the fault
	})
}

// freezeProxyServers has so many users that they count although each of them waits.
func freezeProxyServers(t *testing.T) (end func()) {
	cfg := installed.ThroughProxyAPI(installed.Clusters[0])
	cfg.BearerToken = installed.HubToken
	thaw := freezeAll(t, installed.Kind(t, installed.Clusters[0], "proxy server"))
	ends := []func(){thaw}
	for range 10 {
		ends = append(ends, background(t, 500*time.Millisecond, func() { _ = suite.Once(t.Context(), cfg) }))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// keepServerOut deletes a pod of the proxy servers when the hub's nodes take no other.
func keepServerOut(t *testing.T) (end func()) {
	t.Helper()
	nodes := installed.Hub.CoreV1().Nodes()
	all, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cordon := func(closed bool) {
		for _, node := range all.Items {
			raw := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, closed)
			if _, err := nodes.Patch(context.Background(), node.Name, types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { cordon(false) })
	cordon(true)
	servers := installed.Kind(t, installed.Clusters[0], "proxy server")
	names, err := servers.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	servers.Kill(t, names[0])
	return func() { cordon(false) }
}

// freezeHub stops the hub's kube-apiserver without ending it.
func freezeHub(t *testing.T) (end func()) {
	t.Helper()
	host, err := url.Parse(installed.HubConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		line, _ := os.ReadFile(filepath.Join(process, "cmdline")) // it may end meanwhile
		args := strings.Split(string(line), "\x00")
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil || filepath.Base(args[0]) != "kube-apiserver" || !slices.Contains(args, "--secure-port="+host.Port()) {
			continue
		}
		end = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
		t.Cleanup(end)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		return end
	}
	t.Fatal("the hub's kube-apiserver is no process of this machine")
	return nil
}

func provideShortCA(t *testing.T) (end func()) {
	t.Helper()
	off := installed.Clusters[1]
	installed.StopAgents(t, off)
	giveCA(t, "e2e-hub")
	giveCA(t, "e2e-agents")
	patch := func(signer string) {
		t.Helper()
		raw := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/authentication/signer","value":%s}]`, signer)
		if _, err := installed.Configuration.Patch(context.Background(), identity.AddonName, types.JSONPatchType, raw, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"type":"Provided","provided":{"hubCASecretName":"e2e-hub","agentCASecretName":"e2e-agents"}}`)
	return func() {
		installed.StartAgents(t, off)
		installed.WantStable(t)
		patch(`{"type":"SelfSigned"}`) // which keeps the CAs
		rotateCAs(t, "they end in a day")
	}
}
