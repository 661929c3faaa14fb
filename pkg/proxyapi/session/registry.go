package session

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

const (
	// sessionNameBytes make a name that cannot be guessed.
	sessionNameBytes = 16
	// MaxShownText bounds what users and clusters have chosen in a session.
	MaxShownText = 300
)

// Registry has the sessions of this replica.
type Registry struct {
	Replica string
	metrics *metrics.Metrics
	// Recorder records some of them; nil for none.
	Recorder *recorder

	mu   sync.Mutex
	open map[string]*Session
}

// NewRegistry returns a registry without sessions.
func NewRegistry(m *metrics.Metrics) *Registry {
	replica, err := os.Hostname()
	if err != nil {
		replica = "unknown"
	}
	return &Registry{Replica: replica, metrics: m, open: map[string]*Session{}}
}

// Record has the sessions recorded that a policy names.
func (s *Registry) Record(policy *RecordingOptions, store *recording.Store, v scope.Views) {
	s.Recorder = &recorder{policy: policy, store: store, views: v, metrics: s.metrics, cut: s.cut, unknown: sets.New[string]()}
}

// Describe makes the session of a request. It is not listed yet.
func (s *Registry) Describe(rs *scope.Scope, kind string) *Session {
	var name [sessionNameBytes]byte
	_, _ = rand.Read(name[:]) // it never fails
	one := &Session{Name: hex.EncodeToString(name[:]), started: time.Now(), Status: v1alpha1.SessionStatus{
		Kind: kind, Cluster: rs.Target.Cluster, View: Shown(rs.Target.View), Target: Shown(targetOf(rs, kind)), Replica: s.Replica,
	}}
	if rs.User != nil {
		one.Status.User = Shown(rs.User.GetName())
	}
	return one
}

// Join lists a session until leave is called.
func (s *Registry) Join(one *Session) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[one.Name] = one
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, one.Name)
	}
}

// targetOf says what a session leads to. Of the query it has the container alone: a command
// line may have secrets.
func targetOf(rs *scope.Scope, kind string) string {
	service, inner := rs.Target.Service, rs.Inner
	switch {
	case rs.Target.ForService():
		return service.Namespace + "/" + service.Service + ":" + service.Port
	case kind == kindConnect:
		return "kube-apiserver"
	case inner == nil:
		return ""
	}
	parts := []string{inner.Namespace, inner.Name}
	switch kind {
	case kindExec, kindAttach:
		query, _ := url.ParseQuery(strings.TrimPrefix(rs.Target.Query, "?")) // what can be read is enough
		parts = append(parts, query.Get("container"))
	case kindPortForward:
	default:
		parts = []string{inner.Namespace, inner.Resource, inner.Name, inner.Subresource}
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "/")
}

// Shown is text that is safe to print: quoted if it is not printable, and cut off.
func Shown(text string) string {
	cut := text
	if len(cut) > MaxShownText {
		cut = cut[:MaxShownText] + "..."
	}
	if Printable(cut) {
		return cut
	}
	return strconv.QuoteToASCII(cut)
}

func Printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) })
}

// List returns all that are open here, the oldest first.
func (s *Registry) List() []v1alpha1.Session {
	s.mu.Lock()
	open := make([]*Session, 0, len(s.open))
	for _, one := range s.open {
		open = append(open, one)
	}
	s.mu.Unlock()
	items := make([]v1alpha1.Session, 0, len(open))
	for _, one := range open {
		items = append(items, one.Object())
	}
	Sort(items)
	return items
}

func Sort(items []v1alpha1.Session) {
	slices.SortFunc(items, func(a, b v1alpha1.Session) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// Get returns a session that is open here, or nil.
func (s *Registry) Get(name string) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[name]
}

// Finish ends a session that is open here, for an administrator. It is not listed any more.
func (s *Registry) Finish(name string) (one *Session) { return s.cut(name, "ended", EndedStatus()) }

// cut ends a session that is open here. The reason is for metrics, the Status for its user.
func (s *Registry) cut(name, reason string, why *metav1.Status) (one *Session) {
	s.mu.Lock()
	if one = s.open[name]; one != nil {
		delete(s.open, name)
	}
	s.mu.Unlock()
	if one != nil {
		s.metrics.Withdrawn.WithLabelValues(reason).Inc()
		one.Why.Store(why)
		one.end()
	}
	return one
}

// ErrEnded ends a stream whose session an administrator has deleted.
var ErrEnded = errors.New("ended by an administrator")

// EndedStatus is what the user of a session reads that was ended.
func EndedStatus() *metav1.Status {
	return &status.New(http.StatusForbidden, ErrEnded.Error()).ErrStatus
}
