package list

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

// isInformers reports whether a list is one that an informer makes, which takes what is not in it
// for gone. Reflectors of client-go list from 0, and later from the newest version that they have
// seen. kubectl, and others that people wait for, name no version.
func (l *listing) isInformers() bool {
	return l.Query.Get("resourceVersion") != "" && l.Query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) &&
		l.form.As != "Table" && !l.View.FailWhenUnreachable
}

// awaits reports whether the list waits for a member that has failed.
func (l *listing) awaits(f *fault.Fault) bool {
	if !l.informer || f == nil {
		return false
	}
	// The clock of versions may be ahead.
	since := time.UnixMicro(min(l.at.Time, l.since.UnixMicro()))
	return time.Since(since) < l.View.InformerTimeout && !f.Believed(since)
}
