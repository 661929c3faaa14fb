package proxyapi

import (
	"crypto/rand"
	"encoding/hex"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
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

const (
	// sessionNameBytes make a name that cannot be guessed.
	sessionNameBytes = 16
	// maxShownText bounds what users and clusters have chosen in a session.
	maxShownText = 300
)

// session is a stream that is open. Only its counters change.
type session struct {
	name    string
	status  v1alpha1.SessionStatus
	started time.Time
	in, out atomic.Int64
	// why is set when it is ended before its time, and end does that. It does not block.
	why atomic.Pointer[metav1.Status]
	end func()
}

// sessions are those of this replica.
type sessions struct {
	replica string
	metrics *metrics
	// recorder records some of them; nil for none.
	recorder *recorder

	mu   sync.Mutex
	open map[string]*session
}

func newSessions(m *metrics) *sessions {
	replica, err := os.Hostname()
	if err != nil {
		replica = "unknown"
	}
	return &sessions{replica: replica, metrics: m, open: map[string]*session{}}
}

// describe makes the session of a request. It is not listed yet.
func (s *sessions) describe(scope *requestScope, kind string) *session {
	var name [sessionNameBytes]byte
	_, _ = rand.Read(name[:]) // it never fails
	one := &session{name: hex.EncodeToString(name[:]), started: time.Now(), status: v1alpha1.SessionStatus{
		Kind: kind, Cluster: scope.target.Cluster, View: shown(scope.target.View), Target: shown(targetOf(scope, kind)), Replica: s.replica,
	}}
	if scope.user != nil {
		one.status.User = shown(scope.user.GetName())
	}
	return one
}

// join lists a session until leave is called.
func (s *sessions) join(one *session) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[one.name] = one
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, one.name)
	}
}

// kindOf is the kind of an upgrade.
func kindOf(scope *requestScope) string {
	if scope.target.ForService() || scope.inner == nil || scope.inner.Resource != "pods" {
		return kindUpgrade
	}
	switch scope.inner.Subresource {
	case "exec":
		return kindExec
	case "attach":
		return kindAttach
	case "portforward":
		return kindPortForward
	}
	return kindUpgrade
}

// targetOf says what a session leads to. Of the query it has the container alone: a command
// line may have secrets.
func targetOf(scope *requestScope, kind string) string {
	service, inner := scope.target.Service, scope.inner
	switch {
	case scope.target.ForService():
		return service.Namespace + "/" + service.Service + ":" + service.Port
	case kind == kindConnect:
		return "kube-apiserver"
	case inner == nil:
		return ""
	}
	parts := []string{inner.Namespace, inner.Name}
	switch kind {
	case kindExec, kindAttach:
		query, _ := url.ParseQuery(strings.TrimPrefix(scope.target.Query, "?")) // what can be read is enough
		parts = append(parts, query.Get("container"))
	case kindPortForward:
	default:
		parts = []string{inner.Namespace, inner.Resource, inner.Name, inner.Subresource}
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "/")
}

// shown is text that is safe to print: quoted if it is not printable, and cut off.
func shown(text string) string {
	cut := text
	if len(cut) > maxShownText {
		cut = cut[:maxShownText] + "..."
	}
	if printable(cut) {
		return cut
	}
	return strconv.QuoteToASCII(cut)
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) })
}

// uidOfSession is a session's UID: no other will have its name.
func uidOfSession(name string) types.UID { return types.UID(name) }

// list returns all that are open here, the oldest first.
func (s *sessions) list() []v1alpha1.Session {
	s.mu.Lock()
	open := make([]*session, 0, len(s.open))
	for _, one := range s.open {
		open = append(open, one)
	}
	s.mu.Unlock()
	items := make([]v1alpha1.Session, 0, len(open))
	for _, one := range open {
		items = append(items, one.object())
	}
	sortSessions(items)
	return items
}

func sortSessions(items []v1alpha1.Session) {
	slices.SortFunc(items, func(a, b v1alpha1.Session) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// get returns a session that is open here, or nil.
func (s *sessions) get(name string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[name]
}

// finish ends a session that is open here, for an administrator. It is not listed any more.
func (s *sessions) finish(name string) (one *session) { return s.cut(name, "ended", endedStatus()) }

// cut ends a session that is open here. The reason is for metrics, the Status for its user.
func (s *sessions) cut(name, reason string, why *metav1.Status) (one *session) {
	s.mu.Lock()
	if one = s.open[name]; one != nil {
		delete(s.open, name)
	}
	s.mu.Unlock()
	if one != nil {
		s.metrics.withdrawn.WithLabelValues(reason).Inc()
		one.why.Store(why)
		one.end()
	}
	return one
}

// object is the session as users see it.
func (s *session) object() v1alpha1.Session {
	object := v1alpha1.Session{Status: s.status}
	object.Name, object.UID, object.CreationTimestamp = s.name, uidOfSession(s.name), metav1.NewTime(s.started)
	object.Status.BytesIn, object.Status.BytesOut = s.in.Load(), s.out.Load()
	return object
}
