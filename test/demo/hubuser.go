package main

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"path/filepath"
	"strings"

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
