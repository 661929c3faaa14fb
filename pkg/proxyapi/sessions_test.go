package proxyapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	spdytransport "k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/replica"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/view"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

// sessionRights are those of jane, who has sessions, and of ada, who ends them.
var sessionRights = []string{"jane * clusters/proxy *", "jane create clusters/stream *", "jane get fleetviews all",
	"ada list sessions *", "ada get sessions *", "ada delete sessions *"}

// sessionWorld has a cluster whose kubelet answers, and a view whose watches go on.
func sessionWorld(t *testing.T, startIt func(*testing.T, func(*Server)) *world) *world {
	t.Helper()
	w := startIt(t, func(s *Server) {
		s.newFleetHandler = func(<-chan struct{}) view.FleetHandler { return fleetFunc(watchAll) }
	})
	w.api.User("jane", "jane")
	w.api.User("ada", "ada")
	w.api.User("eve", "eve")
	w.api.Allow(sessionRights...)
	w.agent("cluster1", kubeAPIServer(t), "cluster1")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			go func() { // ends when its client has, as servers do
				defer conn.Close()
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	w.hub.Forward("cluster1:443", silent.Addr().String())
	w.addView("all", "cluster1", "cluster2")
	return w
}

// watchAll is a watch of a view with one event.
func watchAll(w http.ResponseWriter, r *http.Request, _ fleet.View) {
	event := []byte("{\"type\":\"ADDED\",\"object\":{}}\n")
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(r.Header.Get("Accept"), "protobuf") {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		event = merge.AppendProtobufEvent([]byte{0, 0, 0, 0}, "ADDED", merge.AppendProtobufDocument(nil, metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, nil))
		event[3] = byte(len(event) - 4)
	}
	w.WriteHeader(http.StatusOK)
	for i := range event { // one after the other
		_, _ = w.Write(event[i : i+1])
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// sessionsOf lists sessions as ada.
func (w *world) sessions() ([]v1alpha1.Session, http.Header) {
	w.t.Helper()
	resp, body := w.ask(http.MethodGet, scope.GroupPath+"/sessions", "ada")
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("listing sessions: %d %s", resp.StatusCode, body)
	}
	return decode[v1alpha1.SessionList](w.t.(*testing.T), body).Items, resp.Header
}

// aSession waits for the only session there is.
func (w *world) aSession() (one v1alpha1.Session) {
	w.t.Helper()
	eventually(w.t.(*testing.T), func() bool {
		items, _ := w.sessions()
		if len(items) == 1 {
			one = items[0]
		}
		return len(items) == 1
	})
	return one
}

// seen is what a user reads.
type seen struct {
	mu   sync.Mutex
	text bytes.Buffer
	some chan struct{}
	once sync.Once
}

func newSeen() *seen { return &seen{some: make(chan struct{})} }

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.once.Do(func() { close(s.some) })
	return s.text.Write(p)
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// users are ways to have a session. Each says what it has seen when it has ended.
var users = map[string]struct {
	kind, target, view, wantOut, wantEnd string
	run                                  func(w *world, out *seen) error
}{
	"exec, SPDY":                 {kind: "exec", target: "ns/pod/main", wantOut: "hello\n", wantEnd: session.ErrEnded.Error(), run: remoteCommand("exec", remotecommand.NewSPDYExecutor)},
	"attach, SPDY":               {kind: "attach", target: "ns/pod/main", wantOut: "hello\n", wantEnd: session.ErrEnded.Error(), run: remoteCommand("attach", remotecommand.NewSPDYExecutor)},
	"exec, WebSocket":            {kind: "exec", target: "ns/pod/main", wantOut: "hello\n", wantEnd: session.ErrEnded.Error(), run: remoteCommand("exec", webSocketExecutor)},
	"port-forward, SPDY":         {kind: "port-forward", target: "ns/pod", wantOut: session.ErrEnded.Error(), run: forwardSPDY},
	"port-forward, tunnel":       {kind: "port-forward", target: "ns/pod", wantOut: session.ErrEnded.Error(), run: forwardTunnel},
	"connect":                    {kind: "connect", target: "kube-apiserver", run: connectOnly},
	"another upgrade":            {kind: "upgrade", target: "ns/pods/pod/proxy", wantOut: session.ErrEnded.Error(), run: bareUpgrade},
	"watch of a view, protobuf":  {kind: "view-watch", target: "pods", view: "all", wantOut: "ended by an administrator", run: watchProtobuf},
	"watch of a view, WebSocket": {kind: "view-watch", target: "pods", view: "all", wantOut: `"message":"ended by an administrator"`, wantEnd: "websocket: close 1008 (policy violation): ended by an administrator", run: watchViewSocket},
	"watch of a view":            {kind: "view-watch", target: "pods", view: "all", wantOut: `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ended by an administrator","reason":"Forbidden","code":403}}` + "\n", run: watchView},
}

func webSocketExecutor(config *restclient.Config, method string, u *url.URL) (remotecommand.Executor, error) {
	return remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
}

func remoteCommand(subresource string, executor func(*restclient.Config, string, *url.URL) (remotecommand.Executor, error)) func(*world, *seen) error {
	return func(w *world, out *seen) error {
		u, err := url.Parse(w.url + "/cluster1/api/v1/namespaces/ns/pods/pod/" + subresource + "?container=main&command=echo&command=secret&stdin=true&stdout=true&stderr=true")
		if err != nil {
			return err
		}
		e, err := executor(w.config("jane"), http.MethodPost, u)
		if err != nil {
			return err
		}
		stdin, end := io.Pipe()
		defer end.Close()
		return e.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: stdin, Stdout: out, Stderr: out})
	}
}

// forward has one connection to a port of a pod, as kubectl port-forward has.
func forward(dialer httpstream.Dialer, out *seen) error {
	conn, _, err := dialer.Dial("portforward.k8s.io")
	if err != nil {
		return err
	}
	defer conn.Close()
	header := http.Header{"Port": {"80"}, "Requestid": {"0"}, "Streamtype": {"error"}}
	failure, err := conn.CreateStream(header)
	if err != nil {
		return err
	}
	failure.Close() // kubectl sends nothing there
	header.Set("Streamtype", "data")
	data, err := conn.CreateStream(header)
	if err != nil {
		return err
	}
	if _, err := io.CopyN(out, data, int64(len("hello\n"))); err != nil {
		return err
	}
	_, err = io.Copy(out, failure)
	return err
}

func forwardURL(w *world) *url.URL {
	u, err := url.Parse(w.url + "/cluster1/api/v1/namespaces/ns/pods/pod/portforward")
	if err != nil {
		w.t.Error(err)
	}
	return u
}

func forwardSPDY(w *world, out *seen) error {
	transport, upgrader, err := spdytransport.RoundTripperFor(w.config("jane"))
	if err != nil {
		return err
	}
	return forward(spdytransport.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, forwardURL(w)), out)
}

func forwardTunnel(w *world, out *seen) error {
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(forwardURL(w), w.config("jane"))
	if err != nil {
		return err
	}
	return forward(dialer, out)
}

// byHand sends a request and reads what follows the header of the answer.
func byHand(w *world, request string, out *seen) error {
	conn, answer := w.dialWith(request)
	defer conn.Close()
	_, err := io.Copy(out, answer)
	return err
}

func connectOnly(w *world, out *seen) error {
	out.once.Do(func() { close(out.some) })
	err := byHand(w, "CONNECT cluster1:443 HTTP/1.1\r\nHost: cluster1:443\r\nProxy-Authorization: Bearer jane\r\n\r\n", out)
	if err == nil {
		return fmt.Errorf("the connection ended cleanly")
	}
	return nil
}

func bareUpgrade(w *world, out *seen) error {
	out.once.Do(func() { close(out.some) })
	return byHand(w, "GET /cluster1/api/v1/namespaces/ns/pods/pod/proxy/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer jane\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", out)
}

// watchProtobuf is a watch by client-go, which must understand the last event.
func watchProtobuf(w *world, out *seen) error {
	config := w.config("jane")
	config.Host, config.ContentType = w.url+"/@all", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods("").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for event := range pods.ResultChan() {
		if event.Type != watch.Error {
			_, _ = io.WriteString(out, "some")
			continue
		}
		_, _ = io.WriteString(out, apierrors.FromObject(event.Object).Error())
	}
	return nil
}

func watchView(w *world, out *seen) error {
	r, err := http.NewRequest(http.MethodGet, w.url+"/@all/api/v1/pods?watch=1", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer jane")
	resp, err := w.client().Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(out, resp.Body)
	return err
}

// TestSessions has a session of each kind listed and ended. The user sees why.
func TestSessions(t *testing.T) {
	for name, user := range users {
		t.Run(name, func(t *testing.T) {
			w := sessionWorld(t, func(t *testing.T, prepare func(*Server)) *world { return startWith(t, prepare) })
			if user.kind == "upgrade" {
				w.agent("cluster1", http.HandlerFunc(endless), "cluster1")
			}
			out, ended := newSeen(), make(chan error, 1)
			go func() { ended <- user.run(w, out) }()
			select {
			case <-out.some:
			case err := <-ended:
				t.Fatalf("it ended at once: %v", err)
			}
			one := w.aSession()
			got := []string{one.Status.User, one.Status.Kind, one.Status.Cluster, one.Status.View, one.Status.Target, one.Status.Replica}
			cluster := "cluster1"
			if user.view != "" {
				cluster = ""
			}
			if want := []string{"jane", user.kind, cluster, user.view, user.target, w.server.sessions.Replica}; strings.Join(got, "|") != strings.Join(want, "|") {
				t.Errorf("got session %q, want %q", got, want)
			}
			if user.kind == "exec" && one.Status.BytesOut == 0 {
				t.Errorf("no bytes out, want some")
			}
			if resp, body := w.ask(http.MethodDelete, scope.GroupPath+"/sessions/"+one.Name, "ada"); resp.StatusCode != http.StatusOK {
				t.Errorf("ending it: %d %s", resp.StatusCode, body)
			}
			err := <-ended
			if user.wantEnd != "" && (err == nil || err.Error() != user.wantEnd) {
				t.Errorf("the user's end is %v, want %q", err, user.wantEnd)
			}
			if !strings.Contains(out.String(), user.wantOut) {
				t.Errorf("the user has seen %q, want %q in it", out, user.wantOut)
			}
			if items, _ := w.sessions(); len(items) > 0 {
				t.Errorf("%v are left", items)
			}
			if resp, _ := w.ask(http.MethodDelete, scope.GroupPath+"/sessions/"+one.Name, "ada"); resp.StatusCode != http.StatusNotFound {
				t.Errorf("ending it again: %d, want 404", resp.StatusCode)
			}
		})
	}
}

// TestSessionsLeave has streams end in every way. None of them stays listed.
func TestSessionsLeave(t *testing.T) {
	w := sessionWorld(t, func(t *testing.T, prepare func(*Server)) *world {
		return startWith(t, prepare, func(o *Options) { o.RevalidateStreams = 100 * time.Millisecond })
	})
	const exec = "GET /cluster1/api/v1/namespaces/ns/pods/pod/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer jane\r\n\r\n"
	const watching = "GET /@all/api/v1/pods?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer jane\r\n\r\n"
	const tunnel = "CONNECT cluster1:443 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer jane\r\n\r\n"
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1)) // until the user is gone, or wants it to end
	}), "cluster1")
	requests := map[string]string{"exec": exec, "watch": watching, "connect": tunnel}
	left := func(n int) func() bool {
		return func() bool {
			items, _ := w.sessions()
			return len(items) == n
		}
	}
	for how, end := range map[string]func(conn net.Conn){
		"closes":     func(conn net.Conn) { conn.Close() },
		"is cut off": func(conn net.Conn) { connect.Abort(conn) },
	} {
		for kind, request := range requests {
			t.Log("the user of", kind, how)
			conn, _ := w.dialWith(request)
			w.aSession()
			end(conn)
			eventually(t, left(0))
		}
	}
	conn, answer := w.dialWith(exec)
	w.aSession()
	_, _ = conn.Write([]byte{0}) // the cluster ends it, and the user does when it reads that
	_, _ = io.Copy(io.Discard, answer)
	conn.Close()
	eventually(t, left(0))
	for _, request := range requests {
		conn, _ := w.dialWith(request)
		defer conn.Close()
	}
	eventually(t, left(len(requests)))
	w.api.Set(func(h *hubapi.Hub) { h.Rules = sessionRights[3:] })
	eventually(t, left(0))
}

// TestRightsToSessions has users without the right, names that are none, and what is shown.
func TestRightsToSessions(t *testing.T) {
	w := sessionWorld(t, func(t *testing.T, prepare func(*Server)) *world { return startWith(t, prepare) })
	w.agent("cluster1", http.HandlerFunc(endless), "cluster1")
	conn, _ := w.dialWith("GET /cluster1/api/v1/namespaces/ns/pods/%1b%5b2Jpod/exec?container=%1b%5b31m" + strings.Repeat("x", 1000) + "&command=secret HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nAuthorization: Bearer jane\r\n\r\n")
	defer conn.Close()
	one := w.aSession()
	for _, user := range []string{"jane", "eve"} {
		for method, path := range map[string]string{http.MethodGet: "/sessions", http.MethodHead: "/sessions/" + one.Name, http.MethodDelete: "/sessions/" + one.Name} {
			if resp, body := w.ask(method, scope.GroupPath+path, user); resp.StatusCode != http.StatusForbidden || method == http.MethodGet && !strings.Contains(body, "cluster-proxy-session-manager") {
				t.Errorf("%s %s as %s: %d %s, want 403 that names the role", method, path, user, resp.StatusCode, body)
			}
		}
	}
	for _, name := range []string{"x", "..%2f", strings.Repeat("0", 32), strings.ToUpper(one.Name), one.Name + "0"} {
		if resp, _ := w.ask(http.MethodDelete, scope.GroupPath+"/sessions/"+name, "ada"); resp.StatusCode == http.StatusOK {
			t.Errorf("%q could be ended", name)
		}
	}
	if resp, body := w.ask(http.MethodDelete, scope.GroupPath+"/sessions/"+one.Name+"?dryRun=All", "ada"); resp.StatusCode != http.StatusOK {
		t.Errorf("a dry run: %d %s", resp.StatusCode, body)
	}
	w.aSession()
	resp, body := w.ask(http.MethodGet, scope.GroupPath+"/sessions", "ada", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if resp.StatusCode != http.StatusOK || strings.ContainsAny(body, "\x1b") || strings.Contains(body, `\u001b`) || strings.Contains(body, "secret") || len(body) > 10<<10 {
		t.Errorf("the table has an escape, the command or is long: %d, %d bytes %s", resp.StatusCode, len(body), body)
	}
	if strings.Contains(one.Name, "jane") || !replica.SessionName.MatchString(one.Name) {
		t.Errorf("the name %q says too much", one.Name)
	}
}
