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

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// alertFault is something that goes wrong, and the alerts that say so, by the name,
// severity and process of their rules.
type alertFault struct {
	what   string
	alerts []string
	// unscraped is the kind of processes that Prometheus lacks.
	unscraped string
	// begin makes the fault; what it returns ends it, which the end of the test does too.
	begin func(t *testing.T) (end func())
}

// alertFaults are in an order in which none hides another.
func alertFaults() []alertFault {
	return []alertFault{
		{"Prometheus does not find the addon manager", []string{"ClusterProxyMissing critical addon manager"}, "addon manager", nil},
		{"Prometheus does not find the proxy servers", []string{"ClusterProxyMissing critical proxy server"}, "proxy server", nil},
		{"Prometheus does not find the proxy API", []string{"ClusterProxyMissing critical proxy API"}, "proxy API", nil},
		{"three clusters whose agents never come", []string{"ClusterProxyAgentAway warning", "ClusterProxyManyAgentsAway critical"}, "", addNobody},
		{"an agent that declares another cluster's name", []string{"ClusterProxyAgentsRefused warning"}, "", declareAnother},
		{"a cluster asks for another cluster's certificate", []string{"ClusterProxyCSRRefused warning"}, "", askForAnother},
		{"somebody dials proxy servers without a certificate", []string{"ClusterProxyHandshakesRefused warning"}, "", dialWithout},
		{"somebody opens connections and says nothing", []string{"ClusterProxyHandshakeFlood warning"}, "", dialAndWait},
		{"somebody tries tokens", []string{"ClusterProxyTokenFlood warning"}, "", tryTokens},
		{"the list of exposed Services cannot be read", []string{"ClusterProxyExposedServicesInvalid warning"}, "", breakExposedServices},
		{"the proxy API has next to no memory", []string{"ClusterProxyMemoryFull warning"}, "", takeMemory},
		{"agents of a cluster answer after two seconds", []string{"ClusterProxySlow critical", "ClusterProxySlow warning"}, "", slowAgents},
		{"no node takes a proxy server that went", []string{"ClusterProxyServersShort warning"}, "", keepServerOut},
		{"the proxy servers are frozen", []string{"ClusterProxyServersUnreachable critical", "ClusterProxyErrors critical", "ClusterProxyErrors warning"}, "", freezeProxyServers},
		{"the hub's kube-apiserver is frozen", []string{"ClusterProxyHubOutage critical"}, "", freezeHub},
		{"the hub CA is replaced by one that ends in a day, while a cluster is off", []string{"ClusterProxyCertificateEndsSoon critical", "ClusterProxyCertificateEndsSoon warning", "ClusterProxyCARotationStuck warning"}, "", provideShortCA},
	}
}

// TestAlerts makes a fault for every alert of the chart's rules: the alert fires while the
// fault lasts, and ends after it. It writes the file that E2E_ALERTS names. It disturbs
// everything.
func TestAlerts(t *testing.T) {
	file := os.Getenv("E2E_ALERTS")
	if file == "" {
		t.Skip("make e2e-alerts runs it")
	}
	installed.NeedLab(t, "scrapes processes of this machine")
	p := startPrometheus(t)
	background(t, 50*time.Millisecond, func() { usersAtWork(t) })
	suite.Eventually(t, "no alert", func() error { return p.quiet("") })
	seen := map[string]bool{}
	var table strings.Builder
	fmt.Fprintf(&table, "What has to go wrong for each alert, and how long after that it fired and ended, with rules that wait for one second instead of minutes\nand look back for 10 to 30 seconds instead of 5 minutes to 3 days. `make e2e-alerts` writes it, with a Prometheus that scrapes each second.\n\n")
	fmt.Fprintf(&table, "| fault | alert | fired, s | ended, s |\n|---|---|---:|---:|\n")
	for _, fault := range alertFaults() {
		t.Run(fault.what, func(t *testing.T) { fault.watch(t, p, seen, &table) })
	}
	rules, err := p.alertRules()
	if err != nil {
		t.Fatal(err)
	}
	for rule := range rules {
		if !seen[rule] {
			t.Errorf("no fault makes alert %s fire", rule)
		}
	}
	if t.Failed() {
		return
	}
	if err := os.WriteFile(file, []byte(table.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// watch makes the fault, and ends it when its alerts have fired.
func (f alertFault) watch(t *testing.T, p *testPrometheus, seen map[string]bool, table *strings.Builder) {
	began, end := time.Now(), func() {}
	if f.begin != nil {
		end = sync.OnceFunc(f.begin(t))
		defer end()
	}
	fired := map[string]time.Duration{}
	suite.Eventually(t, fmt.Sprint("firing ", f.alerts), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_ = p.scrape(ctx, f.unscraped) // the hub may not answer
		firing, err := p.alertRules()
		for _, alert := range f.alerts {
			if _, ok := fired[alert]; !ok && firing[alert] {
				fired[alert] = time.Since(began)
			}
		}
		if err != nil || len(fired) < len(f.alerts) {
			return fmt.Errorf("have fired: %v, %w", fired, err)
		}
		return nil
	})
	end()
	ended := time.Now()
	after := map[string]time.Duration{}
	suite.Eventually(t, "no alert any more", func() error {
		firing, err := p.alertRules()
		for _, alert := range f.alerts {
			if _, ok := after[alert]; !ok && err == nil && !firing[alert] {
				after[alert] = time.Since(ended)
			}
		}
		return p.quiet("")
	})
	for _, alert := range f.alerts {
		seen[alert] = true
		fmt.Fprintf(table, "| %s | %s | %.0f | %.0f |\n", f.what, alert, fired[alert].Seconds(), after[alert].Seconds())
	}
}

// quiet scrapes, and has an error while an alert fires.
func (p *testPrometheus) quiet(but string) error {
	if err := p.scrape(p.t.Context(), but); err != nil {
		return err
	}
	rules, err := p.alertRules()
	for rule, fires := range rules {
		if fires {
			err = fmt.Errorf("%s fires", rule)
		}
	}
	return err
}

// alertRules are the rules of alerts by name, severity and process, and whether they fire.
func (p *testPrometheus) alertRules() (map[string]bool, error) {
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, State string
					Labels      map[string]string
				}
			}
		}
	}
	if err := p.get("rules?type=alert", &answer); err != nil {
		return nil, err
	}
	rules := map[string]bool{}
	for _, group := range answer.Data.Groups {
		for _, rule := range group.Rules {
			rules[strings.TrimSpace(rule.Name+" "+rule.Labels["severity"]+" "+rule.Labels["process"])] = rule.State == "firing"
		}
	}
	if len(rules) == 0 {
		return nil, fmt.Errorf("prometheus has no rules")
	}
	return rules, nil
}

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
	conn, err := grpc.NewClient(fmt.Sprint("127.0.0.1:", installed.Lab.AgentPort), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return background(t, 200*time.Millisecond, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		ctx = metadata.AppendToOutgoingContext(ctx, header.AgentID, "another", header.AgentIdentifiers, "host="+other)
		if stream, err := agent.NewAgentServiceClient(conn).Connect(ctx); err == nil {
			_, _ = stream.Recv() // it is refused
		}
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
