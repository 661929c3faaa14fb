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
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
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
	requests  atomic.Int64
}

// run serves listener until ctx is done.
func (f *portForwarder) run(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting a connection to forward: %w", err)
		}
		wg.Go(func() {
			defer conn.Close()
			if err := f.forward(ctx, conn); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Info("Forwarding to a proxy server through the hub", "err", err)
			}
		})
	}
}

// forward carries one connection to a pod chosen at random, so that an agent
// that connects often enough meets every proxy server.
func (f *portForwarder) forward(ctx context.Context, conn net.Conn) error {
	pod, port, err := f.choose(ctx)
	if err != nil {
		return err
	}
	tunnel, err := f.dial(ctx, pod)
	if err != nil {
		return fmt.Errorf("forwarding to pod %q: %w", pod, err)
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
		return "", 0, fmt.Errorf("no proxy server pod is ready in namespace %q of the hub (of %d that are there)", f.namespace, len(list.Items))
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
	url := f.pods.CoreV1().RESTClient().Post().Namespace(f.namespace).Resource("pods").Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(f.hub)
	if err != nil {
		return nil, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	type dialed struct {
		tunnel httpstream.Connection
		err    error
	}
	// The dialer knows no context. What it opens too late is closed.
	result := make(chan dialed)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	go func() {
		tunnel, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		select {
		case result <- dialed{tunnel, err}:
		case <-ctx.Done():
			if err == nil {
				_ = tunnel.Close()
			}
		}
	}()
	select {
	case r := <-result:
		return r.tunnel, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer from the hub within %s: %w", dialTimeout, ctx.Err())
	}
}
