package soak

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/connector"
)

// crowd are all clients.
type crowd struct {
	s       *suite.Suite
	pods    map[string]string // of Deployment web, by cluster
	dialer  *tunnel.Dialer
	tls     *tls.Config // of the proxy server's clients
	service string      // host:port of the exposed Service, as in its URL

	all     []*client
	running sync.WaitGroup
}

// at adds a client, and starts it with what it does.
func (c *crowd) at(name, cluster string, how way, run func(*client)) {
	one := &client{name: name, cluster: cluster, way: how}
	c.all = append(c.all, one)
	c.running.Go(func() { run(one) })
}

// ask adds a client that makes requests.
func (c *crowd) ask(ctx context.Context, name, cluster string, how way, every time.Duration, once func(context.Context) error) {
	c.at(name, cluster, how, func(one *client) { one.repeat(ctx, every, once) })
}

// How often clients begin something: what starts a process on the other side seldom.
const (
	often  = time.Second
	seldom = 4 * time.Second
)

// start starts the clients of a cluster.
func (c *crowd) start(ctx context.Context, cluster string) error {
	for _, endpoint := range c.s.Endpoints(cluster) {
		cfg := endpoint.Cfg
		if endpoint.Name == "direct" {
			c.ask(ctx, "direct get", cluster, straight, often, func(ctx context.Context) error { return suite.Once(ctx, cfg) })
			continue
		}
		cs, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		for name, once := range map[string]func(context.Context) error{
			"get":  func(ctx context.Context) error { return suite.Once(ctx, cfg) },
			"post": func(ctx context.Context) error { return suite.WriteOnce(ctx, cfg) },
			"list": func(ctx context.Context) error { return listPods(ctx, cs) },
			"logs": func(ctx context.Context) error { return c.logs(ctx, cs, cluster) },
		} {
			c.ask(ctx, endpoint.Name+" "+name, cluster, request, often, once)
		}
		c.ask(ctx, endpoint.Name+" exec by WebSocket", cluster, request, seldom, func(ctx context.Context) error { return c.exec(ctx, cfg, cluster, false) })
		c.ask(ctx, endpoint.Name+" exec by SPDY", cluster, request, seldom, func(ctx context.Context) error { return c.exec(ctx, cfg, cluster, true) })
		c.ask(ctx, endpoint.Name+" port-forward by WebSocket", cluster, request, seldom, func(ctx context.Context) error { return c.forward(ctx, cfg, cluster, false) })
		c.ask(ctx, endpoint.Name+" port-forward by SPDY", cluster, request, seldom, func(ctx context.Context) error { return c.forward(ctx, cfg, cluster, true) })
		c.at(endpoint.Name+" watch", cluster, stream, func(one *client) { one.watch(ctx, cfg, namespace) })
		c.at(endpoint.Name+" logs -f", cluster, stream, func(one *client) { one.follow(ctx, cs, c.pods[cluster]) })
	}
	dialed := c.dialer.RESTConfig(cluster)
	dialed.BearerToken, dialed.CAData = c.s.AdminToken[cluster], c.s.ClusterCA(cluster)
	c.ask(ctx, "tunnel.Dialer", cluster, request, often, func(ctx context.Context) error { return suite.Once(ctx, dialed) })
	c.ask(ctx, "konnectivity's client", cluster, request, often, func(ctx context.Context) error { return c.konnectivity(ctx, cluster) })
	c.ask(ctx, "CONNECT", cluster, request, often, func(ctx context.Context) error { return c.connect(ctx, cluster) })
	service := c.s.ThroughProxyAPI(cluster)
	service.BearerToken = c.s.HubToken
	c.ask(ctx, "exposed Service", cluster, request, often, func(ctx context.Context) error {
		return suite.Get(ctx, service, "/api/v1/namespaces/default/services/http:"+c.service+"/proxy-service/")
	})
	return nil
}

// startView starts the clients of the view of all clusters. The object that they watch is on
// one of them.
func (c *crowd) startView(ctx context.Context) error {
	for _, endpoint := range c.s.ViewEndpoints("all", c.s.HubToken) {
		cs, err := kubernetes.NewForConfig(endpoint.Cfg)
		if err != nil {
			return err
		}
		c.ask(ctx, "view list, "+endpoint.Name, "", request, often, func(ctx context.Context) error { return listPods(ctx, cs) })
		c.at("view watch, "+endpoint.Name, "", stream, func(one *client) { one.watch(ctx, endpoint.Cfg, viewNamespace) })
	}
	return nil
}

func listPods(ctx context.Context, cs *kubernetes.Clientset) error {
	pods, err := cs.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err == nil && len(pods.Items) == 0 {
		err = errors.New("no pods")
	}
	return err
}

func (c *crowd) logs(ctx context.Context, cs *kubernetes.Clientset, cluster string) error {
	text, err := cs.CoreV1().Pods("default").GetLogs(c.pods[cluster], &corev1.PodLogOptions{}).DoRaw(ctx)
	if err == nil && !strings.Contains(string(text), cluster) {
		err = fmt.Errorf("the log of %s is %.100q", cluster, text)
	}
	return err
}

// subresource is the client of a pod's exec or portforward.
func (c *crowd) subresource(cfg *rest.Config, cluster, name string) (*rest.Request, error) {
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return cs.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(c.pods[cluster]).SubResource(name), nil
}

func (c *crowd) exec(ctx context.Context, cfg *rest.Config, cluster string, bySPDY bool) error {
	r, err := c.subresource(cfg, cluster, "exec")
	if err != nil {
		return err
	}
	url := r.Param("command", "sh").Param("command", "-c").Param("command", `echo "$CLUSTER"`).Param("stdout", "true").Param("stderr", "true").URL()
	executor, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, url.String())
	if bySPDY {
		executor, err = remotecommand.NewSPDYExecutor(cfg, http.MethodPost, url)
	}
	if err != nil {
		return err
	}
	var out, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &stderr})
	if err == nil && out.String() != cluster+"\n" {
		err = fmt.Errorf("a command said %q and %q, want %s", out.String(), stderr.String(), cluster)
	}
	return err
}

func (c *crowd) forward(ctx context.Context, cfg *rest.Config, cluster string, bySPDY bool) error {
	r, err := c.subresource(cfg, cluster, "portforward")
	if err != nil {
		return err
	}
	var dialer httpstream.Dialer
	if bySPDY {
		transport, upgrader, err := spdy.RoundTripperFor(cfg)
		if err != nil {
			return err
		}
		dialer = spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, r.URL())
	} else if dialer, err = portforward.NewSPDYOverWebsocketDialerForStreaming(r.URL(), cfg); err != nil {
		return err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewForStreaming(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return fmt.Errorf("ended before it was ready: %w", err)
	case <-ctx.Done():
		close(stop)
		return ctx.Err()
	}
	defer func() { close(stop); <-ended }()
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	return getFrom(ctx, nil, fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local), cluster)
}

// getFrom wants an answer that has something in it, on a connection of its own.
func getFrom(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), url, want string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Transport{DialContext: dial, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && !strings.Contains(string(body), want) {
		err = fmt.Errorf("%d: %.100q, want %q in it", response.StatusCode, body, want)
	}
	return err
}

func (c *crowd) konnectivity(ctx context.Context, cluster string) error {
	// A tunnel lives as long as the context that it is made with.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return suite.Once(ctx, c.s.ThroughDialer(cluster, func(_ context.Context, network, address string) (net.Conn, error) {
		single, err := konnectivity.CreateSingleUseGrpcTunnel(ctx, c.s.ProxyServer, grpc.WithTransportCredentials(credentials.NewTLS(c.tls)))
		if err != nil {
			return nil, err
		}
		return single.DialContext(ctx, network, address)
	}))
}

// connect reaches the kube-apiserver of a cluster by CONNECT.
func (c *crowd) connect(ctx context.Context, cluster string) error {
	user := connector.Connector{Address: c.s.ProxyAPI, CA: c.s.HubCA, Token: c.s.HubToken}
	return suite.Once(ctx, c.s.ThroughDialer(cluster, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return user.Dial(ctx, cluster+":443")
	}))
}

// The object that is watched is in a namespace of each cluster, and in one of the first cluster,
// which the view watches.
const (
	namespace     = "soak"
	viewNamespace = "soak-view"
	object        = "count"
)

// count makes an object, and changes its number until ctx is done.
func (c *crowd) count(ctx context.Context, cluster, namespace string) error {
	cs, err := kubernetes.NewForConfig(c.s.Direct(cluster))
	if err != nil {
		return err
	}
	if _, err := cs.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	configMaps := cs.CoreV1().ConfigMaps(namespace)
	if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: object}, Data: map[string]string{"n": "0"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	n := 1
	c.ask(ctx, "direct patch in "+namespace, cluster, straight, often/2, func(ctx context.Context) error {
		_, err := configMaps.Patch(ctx, object, types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
		if err == nil {
			n++
		}
		return err
	})
	return nil
}

// watch follows a number that grows, and goes on after a break where it was.
func (c *client) watch(ctx context.Context, cfg *rest.Config, namespace string) {
	version, last := "", 0
	for ctx.Err() == nil {
		began := time.Now()
		err := suite.WatchConfigMap(ctx, cfg, namespace, object, version, func(raw json.RawMessage) error {
			var event struct {
				Type   string
				Object struct {
					corev1.ConfigMap
					Code    int
					Message string
				}
			}
			if err := json.Unmarshal(raw, &event); err != nil {
				return err
			}
			if event.Type == "ERROR" {
				// The client's version is too old: it begins anew.
				version, last = "", 0
				return fmt.Errorf("the watch says %d %s", event.Object.Code, event.Object.Message)
			}
			var n int
			if _, err := fmt.Sscan(event.Object.Data["n"], &n); err != nil {
				return err
			}
			if last > 0 && n > last+1 {
				c.missed(fmt.Sprintf("events %d to %d are missing", last+1, n-1))
			}
			version, last = event.Object.ResourceVersion, n
			c.note(began, time.Now(), nil)
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil // the server asks to come again
		}
		if errors.Is(err, suite.Refused(http.StatusGone)) {
			version, last = "", 0 // a replica that is killed takes its versions with it
		}
		if err != nil {
			c.note(time.Now(), time.Now(), err)
		}
		pause(ctx, 500*time.Millisecond)
	}
}

// follow reads a log until it breaks, and again.
func (c *client) follow(ctx context.Context, cs *kubernetes.Clientset, pod string) {
	for ctx.Err() == nil {
		err := c.followOnce(ctx, cs, pod)
		if ctx.Err() != nil {
			return
		}
		// kwok's log has no end.
		c.note(time.Now(), time.Now(), fmt.Errorf("the log ended: %w", err))
		pause(ctx, 500*time.Millisecond)
	}
}

func (c *client) followOnce(ctx context.Context, cs *kubernetes.Clientset, pod string) error {
	log, err := cs.CoreV1().Pods("default").GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return err
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		c.note(time.Now(), time.Now(), nil)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.EOF
}
