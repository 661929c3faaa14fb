package kubectlplugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// hostileText is what a cluster could say to whoever looks at it on a terminal.
var hostileText = []string{
	"v1\x1b]0;title\a\x1b[2J\x1b[Hall is well", "\x9b31mred", "\u009b31mred", "a\r\nerror: b", "tab\there", "\b\b\b", "\x00", "\x7f", "\u202eevil\u2066", "\u200b\ufeff\u2028\u2029\u0085",
	"\xff\xfe", "\xc0\x80", "\xe2\x80", "\v\f", "\U000e0041", "√ cluster-api c1: answers", "", "plain",
}

func addHostile(f *testing.F) {
	for _, text := range hostileText {
		f.Add(text)
	}
}

// wantText holds out to printable lines, of which there are as many as the plugin
// itself wrote.
func wantText(t *testing.T, out string, lines int) {
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

func newTerminal() (*plugin, *bytes.Buffer) {
	var out bytes.Buffer
	return &plugin{out: terminal{&out}, err: terminal{&out}}, &out
}

func FuzzStatus(f *testing.F) {
	addHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := newTerminal()
		status := v1alpha1.ClusterStatus{Available: metav1.ConditionStatus("not " + text), Version: text, Reason: text, Message: text}
		cluster := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: text}, Status: status}
		found := []v1alpha1.Cluster{cluster, cluster}
		p.printStatus(found, true)
		wantText(t, out.String(), 3+2+1)
	})
}

func FuzzViews(f *testing.F) {
	addHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := newTerminal()
		view := newView(text, 1, proxyv1alpha1.UnreachableCluster{Name: text, Reason: text})
		view.Spec.Names = proxyv1alpha1.FleetViewNames(text)
		view.Status.UnreachableCount++ // a line for more than are listed
		if err := p.viewTables([]proxyv1alpha1.FleetView{view, view}, true); err != nil {
			t.Fatal(err)
		}
		wantText(t, out.String(), 3+2+1+2)
	})
}

func FuzzWhoami(f *testing.F) {
	addHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := newTerminal()
		user := v1alpha1.UserInfo{Username: text, Groups: []string{text, text}}
		if err := p.whoamiTable(text, v1alpha1.ClusterIdentity{Hub: user, Cluster: user}); err != nil {
			t.Fatal(err)
		}
		wantText(t, out.String(), 3)
	})
}

func FuzzCheck(f *testing.F) {
	addHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := newTerminal()
		p.printFinding(finding{ID: "id", Cluster: text, Text: text, Remedy: "do " + text})
		wantText(t, out.String(), 2)
	})
}

// FuzzTerminal also wants JSON to stay what it was.
func FuzzTerminal(f *testing.F) {
	addHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := newTerminal()
		if _, err := p.print("json", map[string]string{"apiVersion": "v1", "kind": "Text", "text": text}); err != nil {
			t.Fatal(err)
		}
		wantText(t, out.String(), 5)
		var got map[string]string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(text, "\ufffd"); len([]rune(got["text"])) != len([]rune(text)) && got["text"] != want {
			t.Errorf("%+q became %+q", text, got["text"])
		}
	})
}

// TestHostileClusters has each command speak of a cluster that lies about itself,
// and of one that answers with errors of its own making.
func TestHostileClusters(t *testing.T) {
	for i, text := range hostileText {
		if text == "" {
			continue
		}
		mux := http.NewServeMux()
		serve := func(path string, code int, object any) {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				_ = json.NewEncoder(w).Encode(object)
			})
		}
		refusal := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 503, Message: text}
		serve("/version", 200, version.Info{GitVersion: "v1"})
		serve(groupPath, 200, v1alpha1.ClusterList{Items: []v1alpha1.Cluster{
			{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Status: v1alpha1.ClusterStatus{Available: metav1.ConditionTrue, Version: text}},
			{ObjectMeta: metav1.ObjectMeta{Name: "c2"}, Status: v1alpha1.ClusterStatus{Available: metav1.ConditionStatus(text)}}}})
		serve(groupPath+"/c1/proxy/version", 200, version.Info{GitVersion: text})
		user := v1alpha1.UserInfo{Username: text, Groups: []string{text}}
		serve(identityPath("c1"), 200, v1alpha1.ClusterIdentity{Hub: user, Cluster: user})
		serve(groupPath+"/c2/proxy/version", 503, refusal)
		serve(viewsPath, 200, proxyv1alpha1.FleetViewList{Items: []proxyv1alpha1.FleetView{newView(text, 1, proxyv1alpha1.UnreachableCluster{Name: text, Reason: text})}})
		serve(identityPath("c2"), 503, refusal)
		server := httptest.NewServer(mux)
		config := clientcmdapi.NewConfig()
		config.Clusters["hub"] = &clientcmdapi.Cluster{Server: server.URL}
		config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub"}
		config.CurrentContext = "hub"
		file := filepath.Join(t.TempDir(), fmt.Sprint("config", i))
		if err := clientcmd.WriteToFile(*config, file); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"views", "kubeconfig", "__complete views x", "status", "check", "whoami c1", "whoami c2", "status -o json", "status -o yaml", "check -o json",
			"version", "services", "services c1", "test c1", "test c2", "bench c2 --duration=1ms"} {
			var said bytes.Buffer
			out, errOut, err := run(t, file, strings.Fields(command)...)
			fmt.Fprintln(terminal{&said}, "error:", err)
			all := out + errOut + said.String()
			for _, r := range all {
				if r != '\n' && !unicode.IsPrint(r) {
					t.Errorf("%s of %+q says %U: %+q", command, text, r, all)
					break
				}
			}
			if lines := map[string]int{"whoami c1": 3, "whoami c2": 0, "status": 3}; !strings.Contains(command, "-o") {
				if want, ok := lines[command]; ok && strings.Count(out, "\n") != want {
					t.Errorf("%s of %+q: %+q, want %d lines", command, text, out, want)
				}
			}
		}
		server.Close()
	}
}
