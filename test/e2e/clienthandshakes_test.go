package e2e

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// jsonClient asks as programs do that are no Go programs: HTTP/1.1, JSON, and WebSockets.
type jsonClient struct {
	http *http.Client
	base *url.URL
}

func newJSONClient(way clientWay) (jsonClient, error) {
	cfg := rest.CopyConfig(way.cfg)
	cfg.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return jsonClient{}, err
	}
	base, err := url.Parse(cfg.Host)
	return jsonClient{client, base}, err
}

func (c jsonClient) send(ctx context.Context, method, path, body string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.base.String(), "/")+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	return c.http.Do(req)
}

// ask returns the body of an answer, which must be a success.
func (c jsonClient) ask(ctx context.Context, method, path, body, content string) (string, error) {
	resp, err := c.send(ctx, method, path, body, http.Header{"Accept": {jsonType}, "Content-Type": {content}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s is answered %s", method, path, resp.Status)
	}
	return string(answer), err
}

// webSocket is a connection that is one.
type webSocket struct {
	conn io.ReadWriteCloser
	read *bufio.Reader
}

// open opens a WebSocket as browsers and Java's clients do: with an Origin, and without an Accept,
// by which a kubelet would refuse it.
func (c jsonClient) open(ctx context.Context, path string, protocols ...string) (*webSocket, error) {
	header := http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
		"Origin": {c.base.Scheme + "://" + c.base.Host},
	}
	if len(protocols) > 0 {
		header.Set("Sec-Websocket-Protocol", strings.Join(protocols, ", "))
	}
	resp, err := c.send(ctx, http.MethodGet, path, "", header)
	if err != nil {
		return nil, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("the WebSocket %s is answered %s: %.500s", path, resp.Status, body)
	}
	if got := resp.Header.Get("Sec-Websocket-Protocol"); len(protocols) > 0 && got != protocols[0] {
		conn.Close()
		return nil, fmt.Errorf("the WebSocket %s has protocol %q, want %q", path, got, protocols[0])
	}
	return &webSocket{conn, bufio.NewReader(conn)}, nil
}

// next returns the content of the next frame of data.
func (s *webSocket) next() ([]byte, error) {
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(s.read, head); err != nil {
			return nil, err
		}
		length := uint64(head[1] & 0x7f)
		if bytes := map[uint64]int{126: 2, 127: 8}[length]; bytes > 0 {
			long := make([]byte, 8)
			if _, err := io.ReadFull(s.read, long[8-bytes:]); err != nil {
				return nil, err
			}
			length = binary.BigEndian.Uint64(long)
		}
		content := make([]byte, length)
		if _, err := io.ReadFull(s.read, content); err != nil {
			return nil, err
		}
		switch head[0] & 0x0f {
		case 0x8:
			return nil, io.EOF
		case 0x9, 0xa: // ping and pong
		default:
			return content, nil
		}
	}
}

// write writes a short frame of bytes.
func (s *webSocket) write(content []byte) error {
	if len(content) > 125 {
		return errors.New("the frame is too long")
	}
	const masked = 0x80 // with zeros, which leave it as it is
	_, err := s.conn.Write(append([]byte{0x82, masked | byte(len(content)), 0, 0, 0, 0}, content...))
	return err
}

// channel reads what comes on a channel until it has a text, or the socket ends.
func (s *webSocket) channel(number byte, until string) (string, error) {
	var all strings.Builder
	for !strings.Contains(all.String(), until) {
		frame, err := s.next()
		if err != nil {
			return all.String(), err
		}
		if len(frame) > 1 && frame[0] == number {
			all.Write(frame[1:])
		}
	}
	return all.String(), nil
}

// request is a step that asks once.
func request(name, method, path, body, content string, want ...string) clientStep {
	return clientStep{does: name, want: want, run: func(ctx context.Context, way clientWay, v clientValues) (string, error) {
		c, err := newJSONClient(way)
		if err != nil {
			return "", err
		}
		return c.ask(ctx, method, v.in(path), v.in(body), content)
	}}
}

// conversation is a step with a WebSocket.
func conversation(name, path string, protocols []string, talk func(ctx context.Context, c jsonClient, s *webSocket, v clientValues) (string, error), want ...string) clientStep {
	return clientStep{does: name, want: want, run: func(ctx context.Context, way clientWay, v clientValues) (string, error) {
		c, err := newJSONClient(way)
		if err != nil {
			return "", err
		}
		s, err := c.open(ctx, v.in(path), protocols...)
		if err != nil {
			return "", err
		}
		defer s.conn.Close()
		defer context.AfterFunc(ctx, func() { s.conn.Close() })()
		return talk(ctx, c, s, v)
	}}
}

// firstEvent has an object made, and reads the event of it.
func firstEvent(name string) func(context.Context, jsonClient, *webSocket, clientValues) (string, error) {
	return func(ctx context.Context, c jsonClient, s *webSocket, v clientValues) (string, error) {
		if _, err := c.ask(ctx, http.MethodPost, "/api/v1/namespaces/"+v.ns+"/configmaps", `{"metadata":{"name":"`+name+`"}}`, jsonType); err != nil {
			return "", err
		}
		for {
			frame, err := s.next()
			if err != nil {
				return "", err
			}
			var event struct {
				Type   string
				Object struct{ Metadata struct{ Name string } }
			}
			if err := json.Unmarshal(frame, &event); err != nil {
				return string(frame), err
			}
			if strings.HasPrefix(event.Object.Metadata.Name, name) {
				return event.Type + " " + event.Object.Metadata.Name, nil
			}
		}
	}
}

const (
	jsonType = "application/json"
	mapsPath = "/api/v1/namespaces/{ns}/configmaps"
	podPath  = "/api/v1/namespaces/{home}/pods/{pod}"
	execPath = podPath + "/exec?container=web&stdout=true&stderr=true&command=sh&command=-c&command=echo%20%24CLUSTER"
	applied  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied","namespace":"{ns}"},"data":{"colour":"green"}}`
)

// output reads standard output of an exec, on channel 1.
func output(_ context.Context, _ jsonClient, s *webSocket, v clientValues) (string, error) {
	return s.channel(1, v.cluster)
}

// forwarded asks the program behind a port, on channel 0. The first message of each channel is the port.
func forwarded(_ context.Context, _ jsonClient, s *webSocket, _ clientValues) (string, error) {
	if err := s.write([]byte("\x00GET / HTTP/1.0\r\n\r\n")); err != nil {
		return "", err
	}
	return s.channel(0, "hello from")
}

// fabric8 sends the requests of the Java client, as its sources have them: a
// watch is a WebSocket with an Origin and no protocol, exec and port-forward are WebSockets of
// v4.channel.k8s.io.
func fabric8() clientProgram {
	return clientProgram{name: "fabric8's requests", steps: []clientStep{
		request("client.getKubernetesVersion()", http.MethodGet, "/version", "", "", `"gitVersion"`),
		request("pods().inNamespace().list()", http.MethodGet, "/api/v1/namespaces/{home}/pods", "", "", "web-", `"Running"`),
		request("pods().withLabel().list()", http.MethodGet, "/api/v1/namespaces/{home}/pods?labelSelector=app%3Dweb", "", "", "web-"),
		conversation("configMaps().watch(), by WebSocket with Origin", mapsPath+"?allowWatchBookmarks=true&watch=true", nil, firstEvent("watched"), "ADDED watched"),
		conversation("pods().withName().exec(), v4.channel.k8s.io", execPath, []string{"v4.channel.k8s.io"}, output, "{cluster}"),
		conversation("pods().withName().portForward(), v4.channel.k8s.io", podPath+"/portforward?ports=8080", []string{"v4.channel.k8s.io"}, forwarded, "hello from {cluster}"),
		request("pods().withName().getLog()", http.MethodGet, podPath+"/log?pretty=false&tailLines=1", "", "", "{cluster} has been up"),
		request("resource().serverSideApply()", http.MethodPatch, mapsPath+"/applied?fieldManager=fabric8&force=true", applied, "application/apply-patch+yaml", `"green"`),
		request("resource().edit(), a JSON patch", http.MethodPatch, mapsPath+"/applied", `[{"op":"replace","path":"/data/colour","value":"red"}]`, "application/json-patch+json", `"red"`),
		request("selfSubjectAccessReviews().create()", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"namespace":"{ns}","verb":"list","resource":"pods"}}}`, jsonType, `"allowed":true`),
		request("resource().delete()", http.MethodDelete, mapsPath+"/applied", `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background"}`, jsonType, `"Success"`),
	}}
}

// headlamp sends what Headlamp's page sends by its backend when a cluster is opened.
func headlamp() clientProgram {
	p := clientProgram{name: "Headlamp's requests"}
	for _, list := range []struct{ page, path, want string }{
		{"overview: version", "/version", "gitVersion"},
		{"overview: health", "/healthz", "ok"},
		{"overview: discovery", "/apis", "apps"},
		{"overview: nodes", "/api/v1/nodes", `"kubeletVersion"`},
		{"overview: pods", "/api/v1/pods", "web-"},
		{"overview: events", "/api/v1/events?limit=2000", `"kind":"Event`},
		{"namespaces", "/api/v1/namespaces", "kube-system"},
		{"workloads", "/apis/apps/v1/deployments", `"name":"web"`},
		{"custom resources", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "CustomResourceDefinition"},
		{"a pod", podPath, "lab.local/web"},
		{"a pod's log", podPath + "/log?container=web&tailLines=100&timestamps=true", "has been up"},
	} {
		p.steps = append(p.steps, request(list.page, http.MethodGet, list.path, "", "", list.want))
	}
	p.steps = append(p.steps,
		request("login: SelfSubjectRulesReview", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"{ns}"}}`, jsonType, "resourceRules"),
		request("a button: SelfSubjectAccessReview", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"spec":{"resourceAttributes":{"namespace":"{ns}","verb":"delete","resource":"pods"}}}`, jsonType, `"allowed":true`),
		conversation("each list: a watch by WebSocket, base64.binary.k8s.io", mapsPath+"?watch=1", []string{"base64.binary.k8s.io"}, firstEvent("shown"), "ADDED shown"),
		conversation("a terminal: exec, v4 to v1.channel.k8s.io", execPath, []string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"}, output, "{cluster}"),
		request("edit: PUT of a new object, as create", http.MethodPost, mapsPath, applied, jsonType, `"green"`),
		request("delete", http.MethodDelete, mapsPath+"/applied", "", jsonType, `"Success"`),
	)
	return p
}
