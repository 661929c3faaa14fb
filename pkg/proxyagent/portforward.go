package proxyagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"

	listening "open-cluster-management.io/cluster-proxy/pkg/handshakes"
)

const (
	proxyServerSelector = "proxy.open-cluster-management.io/component-name=proxy-server"
	// agentPortName is the agent port's name in the proxy server's pods.
	agentPortName = "agent-server"
)

// portForwarder is a local listener whose connections go through the hub's
// kube-apiserver to a proxy server's pod.
type portForwarder struct {
	hub       *rest.Config
	pods      kubernetes.Interface
	namespace string
	timeout   time.Duration // for the way to a pod; see dialTimeout
	requests  atomic.Int64
}

// run serves listener until ctx is done.
func (f *portForwarder) run(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	listening.Accept(listener, klog.FromContext(ctx), func(conn net.Conn) {
		defer conn.Close()
		if err := f.forward(ctx, conn); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Forwarding to a proxy server through the hub")
		}
	})
	return nil
}

// forward carries one connection to a pod chosen at random, so that an agent
// that connects often enough meets every proxy server.
func (f *portForwarder) forward(ctx context.Context, conn net.Conn) error {
	tunnel, port, err := f.reach(ctx)
	if err != nil {
		return err
	}
	defer tunnel.Close()
	stop := context.AfterFunc(ctx, func() { _ = tunnel.Close(); _ = conn.Close() })
	defer stop()
	id := strconv.FormatInt(f.requests.Add(1), 10)
	problems, err := createStream(tunnel, corev1.StreamTypeError, port, id)
	if err != nil {
		return err
	}
	// Nothing is sent on it; closing our half tells the kubelet so.
	_ = problems.Close()
	data, err := createStream(tunnel, corev1.StreamTypeData, port, id)
	if err != nil {
		return err
	}
	// Whichever side ends first ends both: TLS inside notices a cut.
	ends := make(chan error, 3)
	var wg sync.WaitGroup
	wg.Go(func() { _, err := io.Copy(data, conn); ends <- err })
	wg.Go(func() { _, err := io.Copy(conn, data); ends <- err })
	wg.Go(func() {
		if said, err := io.ReadAll(io.LimitReader(problems, 4<<10)); err == nil && len(said) > 0 {
			ends <- errors.New(string(said))
		}
	})
	err = <-ends
	_ = data.Reset()
	_ = conn.Close()
	_ = tunnel.Close()
	wg.Wait()
	return err
}

func createStream(tunnel httpstream.Connection, kind string, port int32, id string) (httpstream.Stream, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, kind)
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, id)
	stream, err := tunnel.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening a %s stream: %w", kind, err)
	}
	return stream, nil
}

// reach opens a port-forward to a ready pod, and returns the port on which that takes agents.
func (f *portForwarder) reach(ctx context.Context) (httpstream.Connection, int32, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer from the hub within %s: %w", f.timeout, context.DeadlineExceeded))
	defer cancel()
	pod, port, err := f.choose(ctx)
	if err != nil {
		return nil, 0, err
	}
	tunnel, err := f.dial(ctx, pod)
	if err != nil {
		return nil, 0, fmt.Errorf("forwarding to pod %q: %w", pod, err)
	}
	return tunnel, port, nil
}

// choose returns a ready pod and the port on which it takes agents.
func (f *portForwarder) choose(ctx context.Context) (pod string, port int32, err error) {
	list, err := f.pods.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: proxyServerSelector})
	if err != nil {
		return "", 0, fmt.Errorf("listing proxy servers in namespace %q of the hub: %w", f.namespace, err)
	}
	var ready []*corev1.Pod
	for i := range list.Items {
		if isReady(&list.Items[i]) {
			ready = append(ready, &list.Items[i])
		}
	}
	if len(ready) == 0 {
		return "", 0, fmt.Errorf("no proxy server is ready: 0 of %d pods with %s in namespace %q of the hub", len(list.Items), proxyServerSelector, f.namespace)
	}
	chosen := ready[rand.IntN(len(ready))]
	for _, container := range chosen.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name == agentPortName {
				return chosen.Name, p.ContainerPort, nil
			}
		}
	}
	return "", 0, fmt.Errorf("pod %q has no port named %q", chosen.Name, agentPortName)
}

func isReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// dialTimeout bounds the way to a pod through the hub's kube-apiserver.
const dialTimeout = 15 * time.Second

// dial opens a port-forward to a pod. It is SPDY: over a WebSocket, most
// kube-apiservers ask for the right to get pods/portforward as well.
func (f *portForwarder) dial(ctx context.Context, pod string) (httpstream.Connection, error) {
	config, err := rest.TLSConfigFor(f.hub)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if f.hub.Proxy != nil {
		proxy = f.hub.Proxy
	}
	upgrade, err := streamspdy.NewRoundTripperWithConfig(streamspdy.RoundTripperConfig{TLS: config, Proxier: proxy, PingPeriod: pingPeriod})
	if err != nil {
		return nil, err
	}
	var way sockets
	upgrade.Dialer = &net.Dialer{ControlContext: way.add}
	transport, err := rest.HTTPWrappersForConfig(f.hub, upgrade)
	if err != nil {
		return nil, err
	}
	url := f.pods.CoreV1().RESTClient().Post().Namespace(f.namespace).Resource("pods").Name(pod).SubResource("portforward").URL()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url.String(), nil)
	if err != nil {
		return nil, err
	}
	// Only the dial of an upgrade heeds the context: a hub that takes the request and says
	// nothing would keep a goroutine and a socket for each attempt.
	stop := context.AfterFunc(ctx, way.shut)
	tunnel, _, err := spdy.NegotiateStreaming(spdy.NewUpgraderForStreaming(upgrade), &http.Client{Transport: transport}, request, portforward.PortForwardProtocolV1Name)
	if stop() {
		return tunnel, err
	}
	if err == nil {
		_ = tunnel.Close()
	}
	return nil, context.Cause(ctx)
}

// pingPeriod is how often a tunnel is pinged, as client-go does.
const pingPeriod = 5 * time.Second

// sockets are those of one dial.
type sockets struct {
	mu  sync.Mutex
	all []syscall.RawConn
}

// add is a net.Dialer's ControlContext.
func (s *sockets) add(_ context.Context, _, _ string, socket syscall.RawConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, socket)
	return nil
}

// shut ends what waits for the sockets. The dialers close them.
func (s *sockets) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, socket := range s.all {
		_ = socket.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
}
