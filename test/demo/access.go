package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig makes a user on each managed cluster and writes one file with
// a context per cluster. All servers in it are the proxy API of the hub.
func (d *demo) writeKubeconfig(ctx context.Context) error {
	hub, err := kubernetes.NewForConfig(d.lab.Hub.RESTConfig())
	if err != nil {
		return err
	}
	ca, err := hub.CoreV1().Secrets(hubNamespace).Get(ctx, "proxy-server-ca", metav1.GetOptions{})
	if err != nil {
		return err
	}
	address, err := d.lab.ServiceAddress("hub", hubNamespace, "cluster-proxy-addon-user", 9092)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	for _, cluster := range clusters {
		token, err := d.makeUser(ctx, cluster)
		if err != nil {
			return fmt.Errorf("making a user on %s: %w", cluster, err)
		}
		config.Clusters[cluster] = &clientcmdapi.Cluster{Server: "https://" + address + "/" + cluster, CertificateAuthorityData: ca.Data["ca.crt"]}
		config.AuthInfos[cluster] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
		fmt.Fprintf(d.out, "  context %s: server https://%s/%s\n", cluster, address, cluster)
	}
	config.CurrentContext = clusters[0]
	d.kubeconfig = filepath.Join(d.dir, "kubeconfig")
	return clientcmd.WriteToFile(*config, d.kubeconfig)
}

func (d *demo) makeUser(ctx context.Context, cluster string) (string, error) {
	cs, err := kubernetes.NewForConfig(d.lab.Managed[cluster].RESTConfig())
	if err != nil {
		return "", err
	}
	meta := metav1.ObjectMeta{Name: "demo", Namespace: "default"}
	if _, err := cs.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	if _, err := cs.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "demo"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "demo", Namespace: "default"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	token, err := cs.CoreV1().ServiceAccounts("default").CreateToken(ctx, "demo", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}

// showExample runs the Go example, which reaches a managed kube-apiserver with
// TLS end to end: the hub carries only ciphertext.
func (d *demo) showExample(ctx context.Context) error {
	hub, err := kubernetes.NewForConfig(d.lab.Hub.RESTConfig())
	if err != nil {
		return err
	}
	secret, err := hub.CoreV1().Secrets(hubNamespace).Get(ctx, "proxy-client", metav1.GetOptions{})
	if err != nil {
		return err
	}
	ca, err := hub.CoreV1().Secrets(hubNamespace).Get(ctx, "proxy-server-ca", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for file, data := range map[string][]byte{"ca.crt": ca.Data["ca.crt"], "tls.crt": secret.Data["tls.crt"], "tls.key": secret.Data["tls.key"]} {
		if err := os.WriteFile(filepath.Join(d.dir, file), data, 0o600); err != nil {
			return err
		}
	}
	proxyServer, err := d.lab.ServiceAddress("hub", hubNamespace, "proxy-entrypoint", 8090)
	if err != nil {
		return err
	}
	for _, cluster := range clusters {
		out, err := d.show(ctx, nil, filepath.Join(d.dir, "tunnel-client"),
			"--proxy-server="+proxyServer, "--ca="+filepath.Join(d.dir, "ca.crt"), "--cert="+filepath.Join(d.dir, "tls.crt"), "--key="+filepath.Join(d.dir, "tls.key"),
			"--cluster="+cluster, "--kubeconfig="+d.lab.Managed[cluster].KubeconfigPath)
		if err != nil {
			return err
		}
		if !strings.Contains(out, "web-") {
			return fmt.Errorf("the example did not list the pods of %s", cluster)
		}
	}
	return nil
}

func touchConfigMap(ctx context.Context, cs *kubernetes.Clientset, name string, generation int) error {
	maps := cs.CoreV1().ConfigMaps("default")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"generation": fmt.Sprint(generation)}}
	_, err := maps.Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, object, metav1.CreateOptions{})
	}
	return err
}

// lineWaiter is the standard output of a process. It keeps the first line that
// holds a text.
type lineWaiter struct {
	want string
	seen chan struct{}

	mu   sync.Mutex
	buf  bytes.Buffer
	line string
}

func newLineWaiter(want string) *lineWaiter {
	return &lineWaiter{want: want, seen: make(chan struct{})}
}

func (w *lineWaiter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.line != "" {
		return len(p), nil
	}
	w.buf.Write(p)
	lines := bufio.NewScanner(bytes.NewReader(w.buf.Bytes()))
	for lines.Scan() {
		if strings.Contains(lines.Text(), w.want) && bytes.HasSuffix(w.buf.Bytes(), []byte("\n")) {
			w.line = lines.Text()
			close(w.seen)
			break
		}
	}
	return len(p), nil
}

// Seen is closed when the line has come.
func (w *lineWaiter) Seen() <-chan struct{} { return w.seen }

// Line is the line that was waited for.
func (w *lineWaiter) Line() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line
}
