package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterclient "open-cluster-management.io/api/client/cluster/clientset/versioned"
	workclient "open-cluster-management.io/api/client/work/clientset/versioned"
)

// JoinHub has the hub join itself as a managed cluster of that name. It returns
// when it has joined.
func (l *Lab) JoinHub(ctx context.Context, name string) error {
	if l.local != "" || l.group == nil {
		return fmt.Errorf("joining the hub to itself as %q: it is %q already, or the lab is another process's", name, l.local)
	}
	l.local, l.localGroup = name, newGroup()
	l.group.do(func(ctx context.Context) {
		<-ctx.Done()
		l.localGroup.stop()
	})
	if err := l.Hub.startKlusterlet(ctx, l.localGroup, l.assets, l.Hub, name); err != nil {
		return fmt.Errorf("starting the klusterlet of the hub: %w", err)
	}
	return l.Hub.waitRegistered(ctx, name)
}

// LeaveHub undoes JoinHub. Nothing that was installed on the hub as on a managed cluster is
// left when it returns.
func (l *Lab) LeaveHub(ctx context.Context) error {
	clusters, err := clusterclient.NewForConfig(l.Hub.config)
	if err != nil {
		return err
	}
	cs, err := l.Hub.clientset()
	if err != nil {
		return err
	}
	// The klusterlet removes what was installed, so it must still be there.
	if err := clusters.ClusterV1().ManagedClusters().Delete(ctx, l.local, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	works, err := workclient.NewForConfig(l.Hub.config)
	if err != nil {
		return err
	}
	err = poll(ctx, func(ctx context.Context) error {
		_, err := clusters.ClusterV1().ManagedClusters().Get(ctx, l.local, metav1.GetOptions{})
		if err == nil {
			return errors.New("the hub's own ManagedCluster is still there")
		}
		applied, err1 := works.WorkV1().AppliedManifestWorks().List(ctx, metav1.ListOptions{})
		if err1 == nil && len(applied.Items) > 0 {
			err1 = fmt.Errorf("%d AppliedManifestWorks of the hub are still there", len(applied.Items))
		}
		return errors.Join(ignoreNotFound(err), err1)
	})
	if err != nil {
		return err
	}
	if l.Hub.machine != nil {
		if err := l.Hub.stopProgram(ctx, "klusterlet"); err != nil {
			return err
		}
	}
	l.localGroup.stop()
	l.local = ""
	if err := os.RemoveAll(l.Hub.file("hub-kubeconfig")); err != nil {
		return err
	}
	return ignoreNotFound(cs.CoreV1().Namespaces().Delete(ctx, klusterletNamespace, metav1.DeleteOptions{}))
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
