package fault

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// maxText bounds what is shown of a refusal that is no Status.
const maxText = 200

// ErrTimeout is the error of a request that a member did not answer in time.
var ErrTimeout = errors.New("no answer within the view's timeout")

// ErrAway is in the errors of members that are not expected to answer in a moment.
var ErrAway = errors.New("away for longer than a restart takes")

// Fault says why a cluster has no part in an answer.
type Fault struct {
	Cluster string
	// Code is the status with which the cluster refused; 0 if it did not answer.
	Code   int
	Reason string
	// Answer is its refusal; the Kind is empty if that was no Status.
	Answer metav1.Status
	// Slow says that the cluster did not answer in time: to ask again would take as long.
	Slow bool
	// Away says that the cluster is not expected to answer in a moment: to ask again changes nothing.
	Away bool
	// Since is when the cluster's former answer came that is used instead; zero if none is.
	Since time.Time
}

// Of returns the fault of a cluster for which a request ended with an error.
func Of(cluster string, err error) *Fault {
	if f := new(Fault); errors.As(err, &f) {
		return f
	}
	return &Fault{Cluster: cluster, Reason: err.Error(), Slow: errors.Is(err, ErrTimeout), Away: errors.Is(err, ErrAway)}
}

// Read converts a member's answer that is no success to a Fault. Anything but a well-formed
// refusal counts as no answer. The caller closes its body.
func Read(cluster string, response *http.Response) *Fault {
	f := &Fault{Cluster: cluster, Code: response.StatusCode, Reason: fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))}
	if f.Code < 400 || f.Code > 599 {
		f.Code = 0
		return f
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, merge.MaxStatus))
	if err != nil {
		return f // the code says enough
	}
	status, err := merge.ReadStatus(body)
	text := OneLine(string(body), maxText)
	switch {
	case err == nil && status.Message != "":
		f.Answer, f.Reason = status, status.Message
		f.Answer.Code = int32(f.Code)
	case err != nil && text != "":
		f.Reason += ": " + text
	}
	return f
}

// Lasting reports whether a refusal is about the request and does not go away soon.
func (f *Fault) Lasting() bool {
	return f.Code >= 400 && f.Code < 500 && f.Code != http.StatusTooManyRequests
}

// believeAfter is for how long a refusal of rights is not believed by an informer's request: a
// kube-apiserver that has just started refuses everybody until it knows who may what.
const believeAfter = 5 * time.Second

// Believed reports whether an informer's request, which is asked since a time, takes the fault for
// an answer: what the cluster has is not for this user, or it has none.
func (f *Fault) Believed(since time.Time) bool {
	ofRights := f.Code == http.StatusUnauthorized || f.Code == http.StatusForbidden
	return f.Lasting() && (!ofRights || time.Since(since) >= believeAfter)
}

func (f *Fault) Error() string { return fmt.Sprintf("cluster %q %s", f.Cluster, f.Outcome()) }

// Outcome says what the cluster did, after its name.
func (f *Fault) Outcome() string {
	if f.Code == 0 {
		return fmt.Sprintf("did not answer (%s)", f.Reason)
	}
	return fmt.Sprintf("refused (%s)", f.Reason)
}

// Clusters are the clusters of faults, sorted.
func Clusters(faults []*Fault) []string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.Cluster
	}
	slices.Sort(names)
	return names
}

// OneLine is a cluster's words between those of others: in one line, and of most bytes and a
// few dots at most.
func OneLine(text string, most int) string {
	return cut(strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " "), most)
}

// cut cuts a text between runes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
