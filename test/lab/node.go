package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kwokConfig gives every pod logs, a place to run commands in, and ports. Logs
// are followed, exec runs on this machine in a folder of its own, and ports
// lead to programs of the lab.
const kwokConfig = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: true
  enableDebuggingHandlers: true
  nodeLeaseParallelism: 4
  podPlayStageParallelism: 4
  nodePlayStageParallelism: 4
  nodeLeaseDurationSeconds: 40
  nodeIP: 127.0.0.1
  nodeName: localhost
  nodePort: %[1]d
  serverAddress: 127.0.0.1:%[1]d
  tlsCertFile: %[2]s/kubelet.crt
  tlsPrivateKeyFile: %[2]s/kubelet.key
  cidr: %[8]s
---
{apiVersion: kwok.x-k8s.io/v1alpha1, kind: ClusterLogs, metadata: {name: all}, spec: {logs: [{logsFile: %[3]s, previousLogsFile: %[3]s, follow: true}]}}
---
{apiVersion: kwok.x-k8s.io/v1alpha1, kind: ClusterAttach, metadata: {name: all}, spec: {attaches: [{logsFile: %[3]s}]}}
---
{apiVersion: kwok.x-k8s.io/v1alpha1, kind: ClusterExec, metadata: {name: all}, spec: {execs: [{local: {workDir: %[4]s, envs: [{name: CLUSTER, value: %[5]q}]}}]}}
---
{apiVersion: kwok.x-k8s.io/v1alpha1, kind: ClusterPortForward, metadata: {name: all}, spec: {forwards: [{ports: [8080], target: {address: 127.0.0.1, port: %[6]d}}, {ports: [8091], target: {address: 127.0.0.1, port: %[7]d}}]}}
`

// startNode starts kwok and the programs behind its pods.
func (c *Cluster) startNode(g *group, assets Assets) error {
	stages, err := os.ReadFile(assets.path("kwok-stages.yaml"))
	if err != nil {
		return err
	}
	home := c.file("exec")
	podLog := filepath.Join(c.dir, "pod.log")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	config := fmt.Sprintf(kwokConfig, c.kwokPort, c.dir, podLog, home, c.Name, c.webPort, c.agentPort, c.podRange())
	if err := os.WriteFile(c.file("kwok.yaml"), append([]byte(config+"---\n"), stages...), 0o600); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", c.webPort))
	if err != nil {
		return fmt.Errorf("listening for the pods of %s: %w", c.Name, err)
	}
	g.do(func(ctx context.Context) { c.serveWeb(ctx, listener) })
	g.do(func(ctx context.Context) { c.writePodLog(ctx, podLog) })
	p := c.program(assets, "kwok", "--config="+c.file("kwok.yaml"), "--kubeconfig="+c.KubeconfigPath)
	// Commands that are exec'ed inherit kwok's environment.
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	g.start(p)
	return nil
}

// podRange is where pods have their addresses. On the hub those are addresses
// that an EndpointSlice may hold, because its kube-apiserver looks for endpoints
// of aggregated APIs. Nobody dials them.
func (c *Cluster) podRange() string {
	if c.isHub() {
		return "10.127.0.0/16"
	}
	return "127.1.0.0/16"
}

// serveWeb is the program behind port 8080 of every pod.
func (c *Cluster) serveWeb(ctx context.Context, listener net.Listener) {
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "hello from %s\n", c.Name)
		}),
	}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	_ = server.Serve(listener)
}

// writePodLog adds a line to the log of every pod each second, in the format of
// a container runtime.
func (c *Cluster) writePodLog(ctx context.Context, file string) {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer log.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		fmt.Fprintf(log, "%s stdout F %s has been up for %d s\n", time.Now().UTC().Format(time.RFC3339Nano), c.Name, i)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// createWorkloads makes a node and a Deployment "web" with a Service, so that
// people have something to look at.
func (c *Cluster) createWorkloads(ctx context.Context) error {
	cs, err := c.clientset()
	if err != nil {
		return err
	}
	_, err = cs.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        strings.ReplaceAll(c.Name, ".", "-") + "-node",
		Labels:      map[string]string{"kubernetes.io/os": "linux", "kubernetes.io/hostname": c.Name},
		Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) || c.isHub() {
		return err
	}
	labels := map[string]string{"app": "web"}
	replicas := int32(2)
	_, err = cs.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "web", Image: "lab.invalid/web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = cs.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
