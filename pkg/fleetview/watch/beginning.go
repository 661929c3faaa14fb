package watch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// beginning is how a stream's first requests to the members went.
type beginning struct {
	s *stream
	// missing are the clusters whose objects the client does not get at first.
	missing []Missing
	// unfollowed are those whose objects it gets, but no changes of them.
	unfollowed []Missing
	// resumed says that the client has objects. last says that no other form is left.
	resumed, last bool

	// accepted and silent count members that have begun an answer, or given none.
	accepted, silent int
	// refused is the first refusal, and absent the first one of a cluster that does not
	// have such objects.
	refused, absent *refusal
}

// await waits until each member has begun its answer, for the members' timeout at most. It
// returns why there is no stream.
func (b *beginning) await(ctx context.Context, first []*member) error {
	b.silent = len(b.missing)
	timeout := time.NewTimer(b.s.o.MemberTimeout)
	defer timeout.Stop()
	late := false
	for _, m := range first {
		err := errors.New("it did not begin an answer in time")
		if late {
			select {
			case err = <-m.first:
			default:
			}
		} else {
			select {
			case err = <-m.first:
			case <-ctx.Done():
				return nil
			case <-timeout.C:
				late = true
			}
		}
		if !b.last && notAcceptable(err) {
			return err
		}
		b.add(m, err)
	}
	return b.failure()
}

// add notes how one member's first request went.
func (b *beginning) add(m *member, err error) {
	if err == nil || errors.Is(err, errExpired) {
		b.accepted++
		return
	}
	b.s.arrived(m)
	r := new(refusal)
	switch {
	case !errors.As(err, &r):
		b.silent++
	case r.code == http.StatusNotFound:
		if b.absent == nil {
			b.absent = r
		}
		return // the cluster does not have such objects: none is missing
	case b.refused == nil:
		b.refused = r
	}
	if away := (Missing{m.to.Name(), err.Error()}); m.listed() {
		b.unfollowed = append(b.unfollowed, away)
	} else {
		b.missing = append(b.missing, away)
	}
}

// failure returns why there is no stream: nobody has a part in it, as in a list, or some
// have none and the view wants all. A client that has objects keeps them while nobody
// answers, and its stream waits.
func (b *beginning) failure() error {
	switch {
	case b.s.o.FailWhenUnreachable && len(b.missing) > 0:
		return unreachable(b.missing)
	case b.accepted > 0, b.resumed && b.refused == nil && b.absent == nil:
		return nil
	case b.silent > 0:
		return unreachable(b.missing)
	case b.refused != nil:
		return b.refused
	case b.absent != nil:
		return b.absent
	}
	return nil
}

// notAcceptable reports whether a member does not have the form that it was asked for.
func notAcceptable(err error) bool {
	r := new(refusal)
	return errors.As(err, &r) && r.code == http.StatusNotAcceptable
}

// unreachable is the error of a stream that needs clusters that did not answer.
func unreachable(missing []Missing) error {
	err := apierrors.NewServiceUnavailable(fmt.Sprintf("%d clusters of the view did not answer: try again", len(missing)))
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	for i, cluster := range missing {
		if i == maxNamed {
			break
		}
		cause := metav1.StatusCause{Type: "ClusterUnreachable", Field: cluster.Cluster, Message: cluster.Reason}
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, cause)
	}
	return err
}

// warnings are the headers that say what the client does not get.
func (b *beginning) warnings() []string {
	lacking := warningsOf(b.missing, "cluster %s did not answer (%s); its objects are not shown", "%d more clusters did not answer; their objects are not shown")
	return append(lacking, warningsOf(b.unfollowed, "cluster %s cannot be watched (%s); changes of its objects are not shown",
		"%d more clusters cannot be watched; changes of their objects are not shown")...)
}

// warningsOf writes a header for each of the first clusters, and one for all others.
func warningsOf(clusters []Missing, each, more string) []string {
	var warnings []string
	for i, cluster := range clusters {
		if i == maxNamed {
			warnings = append(warnings, "299 - \""+fmt.Sprintf(more, len(clusters)-i)+"\"")
			break
		}
		warnings = append(warnings, "299 - \""+quoted(fmt.Sprintf(each, cluster.Cluster, cluster.Reason))+"\"")
	}
	return warnings
}

// quoted makes text from a member fit for a header's quoted string (RFC 9110, 5.6.4).
func quoted(text string) string {
	const most = 300
	text = strings.Map(func(c rune) rune {
		switch {
		case c < ' ' || c > '~':
			return ' '
		case c == '"' || c == '\\':
			return '\''
		}
		return c
	}, text)
	if len(text) > most {
		text = text[:most] + "..."
	}
	return text
}
