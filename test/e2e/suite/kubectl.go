package suite

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubectlProgram is the real kubectl with the environment it should run in, a
// cache for each cluster.
func (s *Suite) KubectlProgram(cluster string) (path string, env []string) {
	if s.Lab != nil {
		return s.Lab.Kubectl(cluster)
	}
	return cmp.Or(s.options.Clusters.Kubectl, "kubectl"), []string{"KUBECACHEDIR=" + filepath.Join(s.Dir, cluster, "kubectl-cache")}
}

// Kubectl runs the real kubectl through the proxy API.
func (s *Suite) Kubectl(ctx context.Context, cluster, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return s.KubectlPatiently(ctx, cluster, stdin, args...)
}

// KubectlPatiently is kubectl with nothing but ctx to end it.
func (s *Suite) KubectlPatiently(ctx context.Context, cluster, stdin string, args ...string) (string, error) {
	file := filepath.Join(s.Dir, cluster+".kubeconfig")
	if err := WriteKubeconfig(file, s.ThroughProxyAPI(cluster)); err != nil {
		return "", err
	}
	path, env := s.KubectlProgram(cluster)
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig=" + file}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// WriteKubeconfig makes a kubeconfig of what a client of one endpoint needs.
func WriteKubeconfig(file string, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return err
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	if cfg.Proxy != nil {
		proxy, err := cfg.Proxy(nil)
		if err != nil {
			return err
		}
		kubeconfig.Clusters["c"].ProxyURL = proxy.String()
	}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	kubeconfig.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "c"
	return clientcmd.WriteToFile(*kubeconfig, file)
}
