//go:build linux

package lab

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/lab/nodes"
)

//go:embed nodefiles/containerd.toml
var containerdConfig string

//go:embed nodefiles/cni.conflist
var cniConfig string

//go:embed nodefiles/kubelet.yaml
var kubeletConfig string

//go:embed nodefiles/kube-proxy.yaml
var kubeProxyConfig string

//go:embed nodefiles/dns.yaml
var dnsManifest string

//go:embed nodefiles/web.yaml
var webManifest string

// nodeFile is what the templates of nodefiles know.
type nodeFile struct {
	Cluster, Dir, Node, CNIBin, CNIDir         string
	PauseImage, CorednsImage, WebImage         string
	Snapshotter, Cgroup, ClusterDNS, DNSDomain string
	CgroupV1                                   bool
	Hosts                                      map[string]string
}

func (l *Lab) nodeFile(c *Cluster) nodeFile {
	return nodeFile{
		Cluster: c.Name, Dir: c.dir, Node: c.machine.HostName(), CNIBin: nodes.CNIDir, CNIDir: c.file("cni"),
		PauseImage: pauseImage, CorednsImage: corednsImage, WebImage: webImage,
		Snapshotter: snapshotter(l.dir), Cgroup: c.machine.Cgroup, ClusterDNS: nodes.DNSAddress, DNSDomain: nodes.Domain,
		CgroupV1: nodes.CgroupVersion() == 1, Hosts: c.machine.Hosts,
	}
}

func render(text string, with nodeFile) ([]byte, error) {
	parsed, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, with)
	return out.Bytes(), err
}

// snapshotter asks the kernel whether overlays work on a file system: not every
// one can carry them.
func snapshotter(dir string) string {
	probe, err := os.MkdirTemp(dir, "overlay-")
	if err != nil {
		return "native"
	}
	defer os.RemoveAll(probe)
	for _, name := range []string{"l", "u", "w", "m"} {
		if err := os.Mkdir(filepath.Join(probe, name), 0o755); err != nil {
			return "native"
		}
	}
	if err := syscall.Mount("overlay", probe+"/m", "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/l,upperdir=%[1]s/u,workdir=%[1]s/w", probe)); err != nil {
		return "native"
	}
	_ = syscall.Unmount(probe+"/m", 0)
	return "overlayfs"
}

// startNodeCluster starts everything of one cluster and waits until its node is
// ready and its DNS answers.
func (l *Lab) startNodeCluster(ctx context.Context, c *Cluster, files images) error {
	for name, text := range map[string]string{
		"containerd.toml": containerdConfig, "cni/10-lab.conflist": cniConfig, "kubelet.yaml": kubeletConfig,
		"kube-proxy.yaml": kubeProxyConfig, "dns.yaml": dnsManifest, "web.yaml": webManifest, "audit-policy.json": auditPolicy,
	} {
		if err := os.MkdirAll(filepath.Dir(c.file(name)), 0o755); err != nil {
			return err
		}
		content, err := render(text, l.nodeFile(c))
		if err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if err := os.WriteFile(c.file(name), content, 0o644); err != nil {
			return err
		}
	}
	if err := c.startNodePrograms(l.assets, "containerd", "etcd"); err != nil {
		return err
	}
	if err := poll(ctx, func(ctx context.Context) error { return l.dials(ctx, c.Name, "127.0.0.1:2379") }); err != nil {
		return fmt.Errorf("waiting for etcd: %w", err)
	}
	if err := c.startNodePrograms(l.assets, "kube-apiserver"); err != nil {
		return err
	}
	imported := make(chan error, 1)
	go func() { imported <- l.importImages(ctx, c, files) }()
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return errors.Join(err, <-imported)
	}
	err = poll(ctx, func(ctx context.Context) error { return getOK(ctx, client, c.url()+"/readyz") })
	if err := errors.Join(err, <-imported); err != nil {
		return fmt.Errorf("waiting for the kube-apiserver and the images: %w", err)
	}
	if err := c.startNodePrograms(l.assets, "kubelet", "kube-controller-manager", "kube-scheduler", "kube-proxy"); err != nil {
		return err
	}
	l.group.do(func(ctx context.Context) { c.network(ctx, l.nodes) })
	if err := c.applyCRDs(ctx, l.assets); err != nil {
		return err
	}
	manifests := []string{"dns.yaml"}
	if c.isHub() {
		if err := c.startOCMHub(ctx, l.group, l.assets, l.release); err != nil {
			return fmt.Errorf("starting OCM on the hub: %w", err)
		}
	} else {
		manifests = append(manifests, "web.yaml")
	}
	for _, file := range manifests {
		if out, err := exec.CommandContext(ctx, l.assets.path("kubectl"), "--kubeconfig="+c.KubeconfigPath, "apply", "-f", c.file(file)).CombinedOutput(); err != nil {
			return fmt.Errorf("applying %s: %w\n%s", file, err, out)
		}
	}
	return c.waitNode(ctx, l)
}

func (l *Lab) dials(ctx context.Context, from, address string) error {
	conn, err := l.nodes.Dial(ctx, from, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// importImages waits for containerd and gives it the images that this cluster
// needs.
func (l *Lab) importImages(ctx context.Context, c *Cluster, files images) error {
	for _, name := range []string{"pause", "coredns", "addon", "web"} {
		if name == "web" && c.isHub() {
			continue
		}
		if err := poll(ctx, func(ctx context.Context) error { return c.loadImage(ctx, l, files[name]) }); err != nil {
			return err
		}
	}
	return nil
}

// waitNode waits until the node is ready and cluster DNS answers on its Service's
// address, as it would a pod.
func (c *Cluster) waitNode(ctx context.Context, l *Lab) error {
	cs, err := c.clientset()
	if err != nil {
		return err
	}
	if err := poll(ctx, func(ctx context.Context) error {
		node, err := cs.CoreV1().Nodes().Get(ctx, c.machine.HostName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("node %s is not ready", node.Name)
	}); err != nil {
		return err
	}
	available := func(namespace, name string) error {
		return poll(ctx, func(ctx context.Context) error {
			deployment, err := cs.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && !isAvailable(deployment) {
				err = fmt.Errorf("deployment %s has %d of %d replicas available", name, deployment.Status.AvailableReplicas, *deployment.Spec.Replicas)
			}
			return err
		})
	}
	if err := available("kube-system", "coredns"); err != nil || c.isHub() {
		return err
	}
	return errors.Join(available("default", "web"), poll(ctx, func(ctx context.Context) error {
		resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return l.nodes.Dial(ctx, c.Name, nodes.DNSAddress+":53")
		}}
		_, err := resolver.LookupHost(ctx, "web.default.svc.cluster.local.")
		return err
	}))
}

func isAvailable(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && d.Status.AvailableReplicas >= *d.Spec.Replicas
}
