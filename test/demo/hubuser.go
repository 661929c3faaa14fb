package main

import (
	"bytes"
	"context"
	"crypto/x509/pkix"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/test/lab"
)

const (
	hubUser  = "jane"
	hubGroup = "demo-developers"
	// lesser is the cluster on which users of the hub may work in one namespace only.
	lesser = "cluster2"
)

// showHubUser reaches the clusters with nothing but a user's own kubeconfig of
// the hub: the clusters are in the hub's own API, and know her by name.
func (d *demo) showHubUser(ctx context.Context) error {
	hub, err := kubernetes.NewForConfig(d.lab.Hub.RESTConfig())
	if err != nil {
		return err
	}
	if d.hubKubeconfig, err = d.makeHubUser(ctx, hub); err != nil {
		return fmt.Errorf("making %s on the hub: %w", hubUser, err)
	}
	path, env := d.lab.Kubectl("hub")
	env = append(env, "KUBECONFIG="+d.hubKubeconfig)
	out, err := d.show(ctx, env, path, "get", "clusters.clusterproxy.open-cluster-management.io")
	if err != nil {
		return err
	}
	server := d.lab.Hub.RESTConfig().Host
	for _, cluster := range clusters {
		if !strings.Contains(out, cluster) {
			return fmt.Errorf("%s is not in the list of clusters", cluster)
		}
		if err := d.makeMember(ctx, cluster); err != nil {
			return err
		}
		below := "--server=" + server + "/apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/" + cluster + "/proxy"
		for _, command := range []struct {
			args []string
			want string
		}{
			{[]string{"auth", "whoami"}, hubGroup},
			{[]string{"get", "pods"}, "web-"},
			{[]string{"logs", "deploy/web", "--tail=1"}, cluster},
			{[]string{"exec", "deploy/web", "--", "sh", "-c", `echo "this is $CLUSTER"`}, "this is " + cluster},
		} {
			out, err := d.show(ctx, env, path, append([]string{below}, command.args...)...)
			if err != nil {
				return err
			}
			if !strings.Contains(out, command.want) {
				return fmt.Errorf("%q is not in what kubectl %s said", command.want, strings.Join(command.args, " "))
			}
		}
		if err := d.showHubUserAudited(ctx, d.hubKubeconfig, cluster); err != nil {
			return err
		}
	}
	return d.showHubToken(ctx, hub)
}

// showHubUserAudited finds the user's name and groups in a cluster's audit log.
func (d *demo) showHubUserAudited(ctx context.Context, kubeconfig, cluster string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.Host += "/apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/" + cluster + "/proxy"
	event, err := d.getAudited(ctx, cfg, cluster)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "  %s's API server: %s\n", cluster, event)
	if !strings.Contains(event, hubUser) || !strings.Contains(event, hubGroup) {
		return fmt.Errorf("the audit log of %s does not name %s and her group", cluster, hubUser)
	}
	return nil
}

// makeHubUser makes a user of the hub, with a client certificate, who may use
// clusters.
func (d *demo) makeHubUser(ctx context.Context, hub *kubernetes.Clientset) (string, error) {
	if err := createClusterRoleBinding(ctx, hub, "demo-uses-clusters", "cluster-proxy-user",
		rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "Group", Name: hubGroup},
		rbacv1.Subject{Kind: "ServiceAccount", Name: "demo", Namespace: "default"}); err != nil {
		return "", err
	}
	certificate, key, err := lab.UserCertificate(ctx, hub, pkix.Name{CommonName: hubUser, Organization: []string{hubGroup}})
	if err != nil {
		return "", err
	}
	admin := d.lab.Hub.RESTConfig()
	if err := rest.LoadTLSFiles(admin); err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos[hubUser] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: hubUser}
	config.CurrentContext = "hub"
	file := filepath.Join(d.dir, hubUser+".kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// makeMember lets the hub's users work on a cluster, or in one namespace of it: its RBAC
// decides.
func (d *demo) makeMember(ctx context.Context, cluster string) error {
	cs, err := kubernetes.NewForConfig(d.lab.Managed[cluster].RESTConfig())
	if err != nil {
		return err
	}
	subjects := []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: "Group", Name: hubGroup},
		{APIGroup: rbacv1.GroupName, Kind: "User", Name: "cluster:hub:system:serviceaccount:default:demo"},
	}
	if cluster != lesser {
		return createClusterRoleBinding(ctx, cs, "demo-hub-users", "admin", subjects...)
	}
	_, err = cs.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "demo-hub-users"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func createClusterRoleBinding(ctx context.Context, cs *kubernetes.Clientset, name, role string, subjects ...rbacv1.Subject) error {
	_, err := cs.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// showHubToken sends a token of the hub to the proxy API, and then looks for it
// in everything that the managed clusters have written.
func (d *demo) showHubToken(ctx context.Context, hub *kubernetes.Clientset) error {
	if _, err := hub.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	token, err := hub.CoreV1().ServiceAccounts("default").CreateToken(ctx, "demo", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, cluster := range clusters {
		cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: d.kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: cluster}).ClientConfig()
		if err != nil {
			return err
		}
		cfg.BearerToken = token.Status.Token
		event, err := d.getAudited(ctx, cfg, cluster)
		if err != nil {
			return err
		}
		fmt.Fprintf(d.out, "  a token of the hub's service account demo; %s's API server: %s\n", cluster, event)
		if !strings.Contains(event, "cluster:hub:system:serviceaccount:default:demo") {
			return fmt.Errorf("the audit log of %s does not name the hub's service account", cluster)
		}
		files, err := d.searchManagedSide(cluster, token.Status.Token)
		if err != nil {
			return err
		}
		fmt.Fprintf(d.out, "  the token is in none of %d files of %s\n", files, cluster)
	}
	return nil
}

// getAudited sends a request and finds it in the cluster's audit log.
func (d *demo) getAudited(ctx context.Context, cfg *rest.Config, cluster string) (string, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/api/v1/namespaces/default/pods", nil)
	if err != nil {
		return "", err
	}
	id := uuid.NewString()
	req.Header.Set("Audit-ID", id)
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answered %s", cluster, resp.Status)
	}
	return d.findAudit(ctx, cluster, id)
}

// searchManagedSide reads every file and log of a cluster, its etcd's included.
func (d *demo) searchManagedSide(cluster, secret string) (files int, err error) {
	dir := filepath.Dir(filepath.Dir(d.lab.AuditLog(cluster)))
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		relative := strings.TrimPrefix(path, dir+"/")
		if err != nil || !entry.Type().IsRegular() || !strings.HasPrefix(relative, cluster+"/") && !strings.HasPrefix(relative, "logs/"+cluster) {
			return nil // files come and go while the cluster runs
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		files++
		if bytes.Contains(content, []byte(secret)) {
			return fmt.Errorf("the hub's token is in %s", path)
		}
		return nil
	})
	if err == nil && files == 0 {
		return 0, fmt.Errorf("there are no files of %s in %s", cluster, dir)
	}
	return files, err
}
