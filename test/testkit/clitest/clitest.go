// Package clitest has what tests of the plugin's commands share: hubs that answer as those
// with the addon do, and text of clusters that would harm a terminal.
package clitest

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
)

// FakeHub answers as a hub with the addon does: c1 is up, c2 is away.
func FakeHub(t *testing.T) (kubeconfig string) {
	t.Helper()
	return FakeHubWith(t, func(func(string, int, any)) {})
}

// FakeHubWith is one that serves more. A string is served as it is.
func FakeHubWith(t *testing.T, more func(serve func(path string, code int, object any))) (kubeconfig string) {
	t.Helper()
	server := httptest.NewTLSServer(FakeHubHandler(t, more))
	t.Cleanup(server.Close)
	return WriteKubeconfig(t, server)
}

func FakeHubHandler(t *testing.T, more func(serve func(path string, code int, object any))) *http.ServeMux {
	t.Helper()
	mux := http.NewServeMux()
	serve := func(path string, code int, object any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer hub-token" {
				answer(t, w, http.StatusUnauthorized, StatusOf(401, metav1.StatusReasonUnauthorized, "", "Unauthorized"))
				return
			}
			answer(t, w, code, object)
		})
	}
	serve("/version", 200, version.Info{GitVersion: "v1.36.3"})
	serve("/apis/"+v1alpha1.GroupVersion.String(), 200, metav1.APIResourceList{GroupVersion: v1alpha1.GroupVersion.String()})
	serve(cli.APIServicePath, 200, `{"status": {"conditions": [{"type": "Available", "status": "True"}]}}`)
	serve(cli.GroupPath, 200, v1alpha1.ClusterList{Items: []v1alpha1.Cluster{
		{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Status: v1alpha1.ClusterStatus{Available: metav1.ConditionTrue, Tunnels: 2, Version: "v1.35.1", Latency: &metav1.Duration{Duration: 1500 * time.Microsecond}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "c2"}, Status: v1alpha1.ClusterStatus{Available: metav1.ConditionUnknown, Reason: "LeaseStopped", Message: "no lease since noon"}},
	}})
	serve(cli.GroupPath+"/c1/proxy/version", 200, version.Info{GitVersion: "v1.35.1"})
	serve(cli.GroupPath+"/c2/proxy/version", 503, StatusOf(503, metav1.StatusReasonServiceUnavailable, "", `no agent of cluster "c2" is connected since noon`))
	serve(cli.IdentityPath("c1"), 200, v1alpha1.ClusterIdentity{
		Hub: v1alpha1.UserInfo{Username: "ann", Groups: []string{"devs"}}, Cluster: v1alpha1.UserInfo{Username: "ann", Groups: []string{"devs", "system:authenticated"}}})
	serve("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 201, authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}})
	more(serve)
	return mux
}

// answer answers with an object as JSON. A string is served as it is.
func answer(t *testing.T, w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	raw, ok := object.(string)
	if !ok {
		raw = string(Encoded(t, object))
	}
	_, _ = io.WriteString(w, raw)
}

func WriteKubeconfig(t *testing.T, server *httptest.Server) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	config.AuthInfos["ann"] = &clientcmdapi.AuthInfo{Token: "hub-token"}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "ann", Namespace: "team"}
	config.CurrentContext = "hub"
	file := t.TempDir() + "/config"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func ClusterOf(name string, available metav1.ConditionStatus, reason string) v1alpha1.Cluster {
	return v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.ClusterStatus{Available: available, Reason: reason}}
}

func StatusOf(code int32, reason metav1.StatusReason, group, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message, Details: &metav1.StatusDetails{Group: group}}
}

// NewView is a view with that many clusters, besides those that do not answer.
func NewView(name string, reachable int32, unreachable ...proxyv1alpha1.UnreachableCluster) proxyv1alpha1.FleetView {
	away := int32(len(unreachable))
	return proxyv1alpha1.FleetView{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2, CreationTimestamp: metav1.NewTime(time.Now().Add(-100 * time.Hour))},
		Spec:       proxyv1alpha1.FleetViewSpec{Names: proxyv1alpha1.NamesPlain, WhenUnreachable: proxyv1alpha1.WhenUnreachableWarn, ClusterTimeoutSeconds: 5, InformerTimeoutSeconds: 45},
		Status: proxyv1alpha1.FleetViewStatus{
			ObservedGeneration: 2, Clusters: reachable + away, Reachable: reachable, UnreachableCount: away, Unreachable: unreachable,
		},
	}
}

// HostileText is what a cluster could say to whoever looks at it on a terminal.
var HostileText = []string{
	"v1\x1b]0;title\a\x1b[2J\x1b[Hall is well", "\x9b31mred", "\u009b31mred", "a\r\nerror: b", "tab\there", "\b\b\b", "\x00", "\x7f", "\u202eevil\u2066", "\u200b\ufeff\u2028\u2029\u0085",
	"\xff\xfe", "\xc0\x80", "\xe2\x80", "\v\f", "\U000e0041", "√ cluster-api c1: answers", "", "plain",
}

func AddHostile(f *testing.F) {
	for _, text := range HostileText {
		f.Add(text)
	}
}

// WantText holds out to printable lines, of which there are as many as the plugin
// itself wrote.
func WantText(t *testing.T, out string, lines int) {
	t.Helper()
	for _, r := range out {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%+q has %U", out, r)
		}
	}
	if got := strings.Count(out, "\n"); got != lines {
		t.Errorf("%+q has %d lines, want %d", out, got, lines)
	}
}

func NewTerminal() (*cli.Factory, *bytes.Buffer) {
	var out bytes.Buffer
	return &cli.Factory{Out: cli.Terminal{Writer: &out}, Err: cli.Terminal{Writer: &out}}, &out
}

// WantLines wants each line in text, in which the width of gaps does not count.
func WantLines(t *testing.T, text string, want []string) {
	t.Helper()
	got := map[string]bool{}
	for line := range strings.Lines(text) {
		got[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, line := range want {
		if !got[line] {
			t.Errorf("there is no line %q in:\n%s", line, text)
		}
	}
}

// HubOf is the hub's URL.
func HubOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config.Clusters["hub"].Server
}

func Encoded(t *testing.T, object any) []byte {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// HubOfPaths answers each path as its function does, and others with 404.
func HubOfPaths(t *testing.T, paths map[string]func() (int, any)) (kubeconfig string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of, ok := paths[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		code, object := of()
		answer(t, w, code, object)
	}))
	t.Cleanup(server.Close)
	return WriteKubeconfig(t, server)
}

// Always is an answer that does not change.
func Always(code int, object any) func() (int, any) {
	return func() (int, any) { return code, object }
}

// PathsOf are those of a hub with clusters that are good.
func PathsOf(list v1alpha1.ClusterList) map[string]func() (int, any) {
	paths := map[string]func() (int, any){
		"/version": Always(200, `{"gitVersion": "v1.36.3"}`), "/apis/" + v1alpha1.GroupVersion.String(): Always(200, `{}`), cli.GroupPath: Always(200, list),
		cli.APIServicePath: Always(200, `{"status": {"conditions": [{"type": "Available", "status": "True"}]}}`),
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": Always(201, `{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true}}`),
	}
	for _, c := range list.Items {
		paths[cli.GroupPath+"/"+c.Name+"/proxy/version"] = Always(200, `{"gitVersion": "v1.36.3"}`)
		paths[cli.IdentityPath(c.Name)] = Always(200, v1alpha1.ClusterIdentity{})
	}
	return paths
}

// FakeHubOf is a hub with those clusters.
func FakeHubOf(t *testing.T, list v1alpha1.ClusterList) (kubeconfig string) {
	t.Helper()
	return HubOfPaths(t, PathsOf(list))
}

// Run runs a command line of the plugin with the commands that the constructors make.
func Run(t *testing.T, kubeconfig string, args []string, commands ...func(*cli.Factory) *cobra.Command) (out, errOut string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root, p := cli.NewRoot(&stdout, &stderr)
	for _, command := range commands {
		root.AddCommand(command(p))
	}
	root.SetArgs(append([]string{"--kubeconfig=" + kubeconfig}, args...))
	err = root.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}
