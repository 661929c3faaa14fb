package lab

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"text/template"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/test/lab/certs"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

const (
	// grpcBootstrap is the file with which a cluster joins by gRPC.
	grpcBootstrap = "grpc-bootstrap.yaml"
	// grpcAccount is the account of OCM's gRPC server: whatever agents ask for
	// through it, it asks for under this name.
	grpcAccount = "grpc-server-sa"
)

// prepareOCM makes what the hub's OCM needs to be reached by others: a serving
// certificate, and the CA by which the gRPC server verifies agents.
func (c *Cluster) prepareOCM(ca *certs.Authority) error {
	var addresses []net.IP
	if c.machine != nil {
		addresses = append(addresses, net.ParseIP(c.machine.Address))
	}
	if err := ca.Server("ocm", addresses); err != nil {
		return err
	}
	agents, err := certs.New(c.dir, "grpc-ca", "OCM gRPC CA")
	if err != nil {
		return err
	}
	return agents.Client("grpc-bootstrap", bootstrapUser, bootstrapGroup)
}

// startGRPC starts OCM's gRPC server with the account and the rights that OCM's
// operator gives it.
func (c *Cluster) startGRPC(ctx context.Context, g *group, assets Assets) error {
	if err := c.applyGRPCAccount(ctx, assets); err != nil {
		return err
	}
	port, err := ports.Next()
	if err != nil {
		return err
	}
	config := map[string]any{
		"tls_cert_file": c.file("ocm.crt"), "tls_key_file": c.file("ocm.key"), "client_ca_file": c.file("grpc-ca.crt"), "server_bind_port": strconv.Itoa(port),
	}
	if err := writeYAML(c.file("grpc-server.yaml"), config); err != nil {
		return err
	}
	host := "127.0.0.1"
	if c.machine != nil {
		host = c.machine.Address
	}
	bootstrap := map[string]any{"url": net.JoinHostPort(host, strconv.Itoa(port))}
	for key, file := range map[string]string{"caData": "ca.crt", "clientCertData": "grpc-bootstrap.crt", "clientKeyData": "grpc-bootstrap.key"} {
		content, err := os.ReadFile(c.file(file))
		if err != nil {
			return err
		}
		bootstrap[key] = base64.StdEncoding.EncodeToString(content)
	}
	if err := writeYAML(c.file(grpcBootstrap), bootstrap); err != nil {
		return err
	}
	c.grpcPort = port
	return c.startOCM(g, assets, grpcServer, "--kubeconfig="+c.file("grpc-server.kubeconfig"), "--server-config="+c.file("grpc-server.yaml"))
}

// awaitGRPC waits until the hub's gRPC server listens: an agent that begins before it
// does not come back for a long time.
func (l *Lab) awaitGRPC(ctx context.Context) error {
	err := poll(ctx, func(ctx context.Context) error { return l.dialHub(ctx, l.Hub.grpcPort) })
	if err != nil {
		return fmt.Errorf("waiting for OCM's gRPC server: %w", err)
	}
	return nil
}

// dialHere opens a connection from this machine.
func dialHere(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func writeYAML(file string, content any) error {
	raw, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o600)
}

// applyGRPCAccount applies OCM's own manifests and writes a kubeconfig of the
// account.
func (c *Cluster) applyGRPCAccount(ctx context.Context, assets Assets) error {
	files, err := filepath.Glob(assets.ofOCM(filepath.Join(grpcServer, "*.yaml")))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("finding OCM's manifests: %d files, %v", len(files), err)
	}
	for _, file := range files {
		manifest, err := template.ParseFiles(file)
		if err != nil {
			return err
		}
		var rendered bytes.Buffer
		values := map[string]any{"ClusterManagerName": "cluster-manager", "ClusterManagerNamespace": ocmHubNamespace, "Labels": map[string]string{}}
		if err := manifest.Execute(&rendered, values); err != nil {
			return err
		}
		applied := c.file("grpc-" + filepath.Base(file))
		if err := os.WriteFile(applied, rendered.Bytes(), 0o600); err != nil {
			return err
		}
		if out, err := c.kubectl(ctx, assets, "apply", "-f", applied); err != nil {
			return fmt.Errorf("applying %s: %w\n%s", applied, err, out)
		}
	}
	cs, err := c.clientset()
	if err != nil {
		return err
	}
	day := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 60 * 60)}}
	token, err := cs.CoreV1().ServiceAccounts(ocmHubNamespace).CreateToken(ctx, grpcAccount, day, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	admin, err := clientcmd.LoadFromFile(c.insideKubeconfig())
	if err != nil {
		return err
	}
	admin.AuthInfos = map[string]*clientcmdapi.AuthInfo{grpcAccount: {Token: token.Status.Token}}
	admin.Contexts[admin.CurrentContext].AuthInfo = grpcAccount
	return clientcmd.WriteToFile(*admin, c.file("grpc-server.kubeconfig"))
}

// convertAddons starts OCM's webhook and has the kube-apiserver convert addons
// with it between the versions of their API.
func (c *Cluster) convertAddons(ctx context.Context, g *group, assets Assets) error {
	port, err := ports.Next()
	if err != nil {
		return err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p := c.ocm(assets, "addon-webhook", "--listen="+address, "--cert="+c.file("ocm.crt"), "--key="+c.file("ocm.key"))
	p.name, p.log = "ocm-addon-webhook", filepath.Join(c.logs, "hub-ocm-addon-webhook.log")
	if err := c.start(g, p); err != nil {
		return err
	}
	ca, err := os.ReadFile(c.file("ca.crt"))
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1","v1beta1"],"clientConfig":{"url":"https://%s/convert","caBundle":%q}}}}}`,
		address, base64.StdEncoding.EncodeToString(ca))
	out, err := c.kubectl(ctx, assets, "patch", "--type=merge", "--patch="+patch, "customresourcedefinitions.apiextensions.k8s.io",
		"clustermanagementaddons.addon.open-cluster-management.io", "managedclusteraddons.addon.open-cluster-management.io")
	if err != nil {
		return fmt.Errorf("having addons converted by a webhook: %w\n%s", err, out)
	}
	return nil
}
