package suite

import (
	"cmp"
	"context"
	"errors"
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
	cmd, err := s.KubectlCommand(ctx, cluster, s.ThroughProxyAPI(cluster), args...)
	if err != nil {
		return "", err
	}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// KubectlCommand is the real kubectl as a client with that configuration. Kubectl's
// caches and the kubeconfig are kept under name.
func (s *Suite) KubectlCommand(ctx context.Context, name string, cfg *rest.Config, args ...string) (*exec.Cmd, error) {
	file := filepath.Join(s.Dir, name+".kubeconfig")
	if err := WriteKubeconfig(file, cfg); err != nil {
		return nil, err
	}
	path, env := s.KubectlProgram(name)
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig=" + file}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	return cmd, nil
}

// WriteKubeconfig makes a kubeconfig of what a client of one endpoint needs.
func WriteKubeconfig(file string, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return err
	}
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData, TLSServerName: cfg.ServerName}
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
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return err
	}
	// Another kubectl may read the file of this name.
	written, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file))
	if err != nil {
		return err
	}
	_, err = written.Write(content)
	if err = errors.Join(err, written.Close()); err != nil {
		return err
	}
	return os.Rename(written.Name(), file)
}
