package session

import (
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// Kinds of sessions.
const (
	kindExec        = "exec"
	kindAttach      = "attach"
	kindPortForward = "port-forward"
	kindConnect     = "connect"
	// kindUpgrade is any other upgrade: to a Service, or by a pod's or a node's proxy.
	kindUpgrade   = "upgrade"
	kindViewWatch = "view-watch"
)

// kindOf is the kind of an upgrade.
func kindOf(rs *scope.Scope) string {
	if rs.Target.ForService() || rs.Inner == nil || rs.Inner.Resource != "pods" {
		return kindUpgrade
	}
	switch rs.Inner.Subresource {
	case "exec":
		return kindExec
	case "attach":
		return kindAttach
	case "portforward":
		return kindPortForward
	}
	return kindUpgrade
}

// Session is a stream that is open. Only its counters change.
type Session struct {
	Name    string
	Status  v1alpha1.SessionStatus
	started time.Time
	in, out atomic.Int64
	// Why is set when it is ended before its time, and end does that. It does not block.
	Why atomic.Pointer[metav1.Status]
	end func()
}

// Object is the session as users see it.
func (s *Session) Object() v1alpha1.Session {
	object := v1alpha1.Session{Status: s.Status}
	object.Name, object.UID, object.CreationTimestamp = s.Name, UIDOf(s.Name), metav1.NewTime(s.started)
	object.Status.BytesIn, object.Status.BytesOut = s.in.Load(), s.out.Load()
	return object
}

// UIDOf is a session's UID: no other will have its name.
func UIDOf(name string) types.UID { return types.UID(name) }
