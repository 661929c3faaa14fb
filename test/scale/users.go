package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// users are kubeconfigs of the hub's users: of one who may use every cluster, and of one who may
// use some by their names.
type users struct {
	all, named string
	token      string // of the first
	named500   int    // how many names that is
}

const (
	allUser   = "scale-all"
	namedUser = "scale-named"
	mostNamed = 500
)

func (w *world) makeUsers(ctx context.Context) error {
	some := names(min(mostNamed, w.size))
	w.users.named500 = len(some)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namedUser}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"clusterproxy.open-cluster-management.io"}, Resources: []string{"clusters"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"clusterproxy.open-cluster-management.io"}, Resources: []string{"clusters/proxy"}, Verbs: []string{"*"}, ResourceNames: some},
		{APIGroups: []string{"proxy.open-cluster-management.io"}, Resources: []string{"fleetviews"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"clusterproxy.open-cluster-management.io"}, Resources: []string{"fleetviews/proxy"}, Verbs: []string{"*"}},
	}}
	if _, err := w.kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, user := range []struct {
		name, role string
		file       *string
	}{{allUser, "cluster-proxy-user", &w.users.all}, {namedUser, namedUser, &w.users.named}} {
		token, err := w.makeUser(ctx, user.name, user.role)
		if err != nil {
			return err
		}
		if user.name == allUser {
			w.users.token = token
		}
		*user.file = w.file(user.name + ".kubeconfig")
		if err := w.writeKubeconfig(*user.file, w.config.Host, token); err != nil {
			return err
		}
	}
	return nil
}

// makeUser makes a service account with a ClusterRole, and returns its token.
func (w *world) makeUser(ctx context.Context, name, role string) (string, error) {
	accounts := w.kube.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if _, err := w.kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	seconds := int64(4 * time.Hour / time.Second)
	made, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}

// writeKubeconfig writes a kubeconfig of the hub, or of something below its API. Context fleet
// leads to the view of all clusters.
func (w *world) writeKubeconfig(file, server, token string) error {
	config := rest.CopyConfig(w.config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	kubeconfig := clientcmdapi.NewConfig()
	for name, below := range map[string]string{"hub": "", "fleet": "/apis/clusterproxy.open-cluster-management.io/v1alpha1/fleetviews/all/proxy"} {
		kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: server + below, CertificateAuthorityData: config.CAData}
		kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "user"}
	}
	kubeconfig.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	kubeconfig.CurrentContext = "hub"
	return clientcmd.WriteToFile(*kubeconfig, file)
}

// proxyAPI is where the proxy API is, and the CA of its certificate, PEM.
func (w *world) proxyAPI(ctx context.Context) (address string, ca []byte, err error) {
	secret, err := w.kube.CoreV1().Secrets(namespace).Get(ctx, "proxy-server-ca", metav1.GetOptions{})
	if err != nil {
		return "", nil, err
	}
	address, err = w.lab.ServiceAddress("hub", namespace, "cluster-proxy-addon-user", 9092)
	return address, secret.Data["ca.crt"], err
}

// direct is an HTTP client of the proxy API with a token of the hub.
func (w *world) direct(ctx context.Context, token string) (*http.Client, string, error) {
	address, ca, err := w.proxyAPI(ctx)
	if err != nil {
		return nil, "", err
	}
	client, err := rest.HTTPClientFor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	return client, "https://" + address, err
}

// traffic is one user's requests, some a second, each to one of a few clusters.
type traffic struct {
	cancel  context.CancelFunc
	done    sync.WaitGroup
	mu      sync.Mutex
	latency []time.Duration
	failed  int
	last    string // why
}

const (
	trafficEvery    = 100 * time.Millisecond
	trafficClusters = 25
)

// startTraffic sends requests at fixed times, whether earlier ones have ended or not.
func (w *world) startTraffic(ctx context.Context) *traffic {
	ctx, cancel := context.WithCancel(ctx)
	t := &traffic{cancel: cancel}
	client, base, err := w.direct(ctx, w.users.token)
	if err != nil {
		t.last, t.failed = err.Error(), 1
		return t
	}
	some := names(min(trafficClusters, w.size))
	t.done.Go(func() {
		tick := time.NewTicker(trafficEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				cluster := some[rand.IntN(len(some))]
				t.done.Go(func() { t.ask(ctx, client, base+"/"+cluster+"/api/v1/pods") })
			}
		}
	})
	return t
}

func (t *traffic) ask(ctx context.Context, client *http.Client, url string) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	began := time.Now()
	code, err := ask(limited, client, url)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.latency = append(t.latency, time.Since(began))
	if err != nil || code != http.StatusOK {
		t.failed++
		t.last = fmt.Sprint(code, " ", err)
	}
}

func ask(ctx context.Context, client *http.Client, url string) (code int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// stop ends the traffic, and waits for the answers that are missing.
func (t *traffic) stop() *traffic {
	t.cancel()
	t.done.Wait()
	return t
}

// p99 is the time that one request in a hundred took or more.
func (t *traffic) p99() time.Duration {
	if len(t.latency) == 0 {
		return 0
	}
	slices.Sort(t.latency)
	return t.latency[len(t.latency)*99/100]
}

// traffic is a user's for some time.
func (w *world) traffic(ctx context.Context, d time.Duration) (*traffic, error) {
	t := w.startTraffic(ctx)
	err := pause(ctx, d)
	return t.stop(), err
}

// addTraffic says what a user noticed beside something.
func (w *world) addTraffic(what string, quiet, beside *traffic) {
	w.add(what+": a user's p99 before, ms", quiet.p99().Seconds()*1000)
	w.add(what+": a user's p99 beside it, ms", beside.p99().Seconds()*1000)
	w.add(what+": a user's requests that failed beside it", float64(beside.failed))
	if beside.failed+quiet.failed > 0 {
		w.say(fmt.Sprintf("  %d of %d requests failed before it, %d of %d beside it: %s %s", quiet.failed, len(quiet.latency), beside.failed, len(beside.latency), quiet.last, beside.last))
	}
}
