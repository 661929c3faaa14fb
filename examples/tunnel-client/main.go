// Command tunnel-client says the version of a managed cluster and lists its nodes and pods, from
// the hub, through the tunnel, with package tunnel as the dialer of client-go.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

func main() {
	proxyServer := flag.String("proxy-server", "proxy-entrypoint.open-cluster-management-addon.svc:8090", "host:port at which the proxy server takes clients")
	ca := flag.String("ca", "ca.crt", "CA bundle of the proxy server: ca.crt of Secret proxy-server-ca")
	cert := flag.String("cert", "tls.crt", "client certificate: tls.crt of Secret proxy-client")
	key := flag.String("key", "tls.key", "its key: tls.key of Secret proxy-client")
	cluster := flag.String("cluster", "cluster1", "name of the managed cluster")
	kubeconfig := flag.String("kubeconfig", "kubeconfig", "kubeconfig of the managed cluster, for its CA and a credential; its server is not used")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *proxyServer, *ca, *cert, *key, *cluster, *kubeconfig); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, proxyServer, ca, cert, key, cluster, kubeconfig string) error {
	dialer, err := tunnel.FromFiles(proxyServer, ca, cert, key)
	if err != nil {
		return err
	}
	defer dialer.Close()

	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("loading kubeconfig %q: %w", kubeconfig, err)
	}
	through := dialer.RESTConfig(cluster)
	cfg.Host, cfg.Dial, cfg.Proxy = through.Host, through.Dial, through.Proxy
	cfg.TLSClientConfig.ServerName = through.TLSClientConfig.ServerName

	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("making a client for cluster %q: %w", cluster, err)
	}
	version, err := client.Discovery().ServerVersion()
	if tunnel.CodeOf(err) == tunnel.NoAgent {
		return fmt.Errorf("cluster %q is not connected to the hub: %w", cluster, err)
	}
	if err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	fmt.Println("version", version)
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, node := range nodes.Items {
		fmt.Println("node", node.Name)
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for _, pod := range pods.Items {
		fmt.Println("pod", pod.Namespace+"/"+pod.Name)
	}
	return nil
}
