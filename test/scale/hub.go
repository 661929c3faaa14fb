package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
)

// Labels of the pods of our processes.
const (
	addonManager = "component=cluster-proxy-manager"
	proxyServers = "proxy.open-cluster-management.io/component-name=proxy-server"
	proxyAPI     = "component=cluster-proxy-addon-user"
)

func hubScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, addonv1alpha1.Install} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// pods are those with a label that run and can be asked for their metrics.
func (w *world) pods(ctx context.Context, label string) (running []corev1.Pod, err error) {
	pods, err := w.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		address, err := w.metricsAddress(pod)
		if err != nil {
			continue
		}
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			running = append(running, pod)
		}
	}
	return running, nil
}

// address is where a port of a pod is reached, by its name.
func (w *world) address(pod corev1.Pod, port string) (string, error) {
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name == port {
				return w.lab.PodAddress("hub", pod.UID, p.ContainerPort)
			}
		}
	}
	return "", fmt.Errorf("pod %s has no port %q", pod.Name, port)
}

// metricsAddress is where a pod serves its metrics.
func (w *world) metricsAddress(pod corev1.Pod) (string, error) {
	address, err := w.address(pod, "metrics")
	if err != nil {
		address, err = w.address(pod, "health")
	}
	return address, err
}

// metrics are what a pod serves.
func (w *world) metrics(ctx context.Context, pod corev1.Pod) (string, error) {
	address, err := w.metricsAddress(pod)
	if err != nil {
		return "", err
	}
	return plainhttp.Get(ctx, "http://"+address+"/metrics")
}

// usage is what a process takes, or some together.
type usage struct {
	rss, heap, files, goroutines, cpu float64 // bytes, and seconds
}

func (u usage) minus(before usage) usage {
	return usage{u.rss - before.rss, u.heap - before.heap, u.files - before.files, u.goroutines - before.goroutines, u.cpu - before.cpu}
}

func usageOf(metrics string) (u usage) {
	for name, into := range map[string]*float64{
		"process_resident_memory_bytes": &u.rss, "go_memstats_heap_inuse_bytes": &u.heap, "process_open_fds": &u.files,
		"go_goroutines": &u.goroutines, "process_cpu_seconds_total": &u.cpu,
	} {
		*into = value(metrics, name)
	}
	return u
}

// value adds up the samples of a metric that have some labels.
func value(metrics, name string, labels ...string) float64 {
	sum, err := scrape.Sum(strings.NewReader(metrics), name, labels...)
	if err != nil {
		return 0
	}
	return sum
}

// Our processes and those around them, as the table calls them.
const (
	theManager  = "addon manager"
	theServers  = "each proxy server"
	theAPI      = "proxy API"
	theAgents   = "agents"
	theBalancer = "balancers (test)"
	theHub      = "hub kube-apiserver"
)

var processes = []string{theManager, theServers, theAPI, theAgents, theBalancer, theHub}

// usages are what all take: of the proxy servers the mean, of processes that simulate all
// together.
func (w *world) usages(ctx context.Context) (map[string]usage, error) {
	all := map[string]usage{}
	for name, label := range map[string]string{theManager: addonManager, theServers: proxyServers, theAPI: proxyAPI} {
		pods, err := w.pods(ctx, label)
		if err != nil {
			return nil, err
		}
		if len(pods) == 0 {
			return nil, fmt.Errorf("no %s runs", name)
		}
		for _, pod := range pods {
			text, err := w.metrics(ctx, pod)
			if err != nil {
				return nil, err
			}
			all[name] = all[name].plus(usageOf(text), 1/float64(len(pods)))
		}
	}
	for name, children := range map[string][]*child{theAgents: w.agents, theBalancer: w.balancers} {
		for _, c := range children {
			text, err := plainhttp.Get(ctx, "http://"+c.metrics+"/metrics")
			if err != nil {
				return nil, err
			}
			all[name] = all[name].plus(usageOf(text), 1)
		}
	}
	text, err := w.hubMetrics(ctx)
	all[theHub] = usageOf(text)
	return all, err
}

func (u usage) plus(other usage, times float64) usage {
	return usage{u.rss + times*other.rss, u.heap + times*other.heap, u.files + times*other.files, u.goroutines + times*other.goroutines, u.cpu + times*other.cpu}
}

func (w *world) hubMetrics(ctx context.Context) (string, error) {
	raw, err := w.kube.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	return string(raw), err
}

// sum adds up a metric over the pods with a label.
func (w *world) sum(ctx context.Context, label, name string, labels ...string) (sum float64, err error) {
	pods, err := w.pods(ctx, label)
	if err != nil {
		return 0, err
	}
	for _, pod := range pods {
		text, err := w.metrics(ctx, pod)
		if err != nil {
			return 0, err
		}
		sum += value(text, name, labels...)
	}
	return sum, nil
}
