// Command konnectivity-client lists the nodes and pods of a managed cluster from
// the hub, through the tunnel, with nothing but the unmodified
// konnectivity-client. It shows that programs written for upstream go on
// working; new ones are better off with ../tunnel-client.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"
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
	host, _, err := net.SplitHostPort(proxyServer)
	if err != nil {
		return fmt.Errorf("parsing --proxy-server: %w", err)
	}
	proxyTLS, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
		ServerName: host, CAFile: ca, CertFile: cert, KeyFile: key}})
	if err != nil {
		return fmt.Errorf("loading the certificates for the proxy server: %w", err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("loading kubeconfig %q: %w", kubeconfig, err)
	}
	cfg.Host = "https://" + cluster
	cfg.TLSClientConfig.ServerName = "kubernetes.default.svc"
	cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	cfg.Dial = func(dialCtx context.Context, network, address string) (net.Conn, error) {
		// A single-use tunnel carries one connection and ends with it, or with
		// its context: that must not be the dial's.
		single, err := konnectivity.CreateSingleUseGrpcTunnelWithContext(dialCtx, ctx, proxyServer,
			grpc.WithTransportCredentials(credentials.NewTLS(proxyTLS)))
		if err != nil {
			return nil, fmt.Errorf("connecting to proxy server %q: %w", proxyServer, err)
		}
		return single.DialContext(dialCtx, network, address)
	}

	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("making a client for cluster %q: %w", cluster, err)
	}
	return list(ctx, client)
}

func list(ctx context.Context, client kubernetes.Interface) error {
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
