package watch

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// statusError reads the object of an ERROR event.
func statusError(object []byte) error {
	status, err := merge.ReadStatus(object)
	if err != nil {
		return fmt.Errorf("reading an ERROR event: %w", err)
	}
	if status.Code == http.StatusGone {
		return errExpired
	}
	return fmt.Errorf("the cluster ended the watch: %s", status.Message)
}

// statusOf is a refusal as the object of an ERROR event.
func statusOf(f *fault.Fault) *metav1.Status {
	status := f.Status()
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: status.Code, Reason: status.Reason, Message: status.Message,
	}
}

// unreachable says that clusters have not answered in a view that wants all of them.
func unreachable(clusters []string) *metav1.Status {
	faults := make([]*fault.Fault, len(clusters))
	for i, cluster := range clusters {
		faults[i] = &fault.Fault{Cluster: cluster, Reason: "its objects are not complete"}
	}
	status := fault.Unreachable(faults).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &status
}

func expired() *metav1.Status { return gone("too old resource version") }

// gone says that the client must list again.
func gone(message string) *metav1.Status {
	status := apierrors.NewResourceExpired(message).ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return &status
}
