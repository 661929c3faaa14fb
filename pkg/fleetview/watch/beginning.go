package watch

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// beginning is how a stream's first requests to the members went.
type beginning struct {
	s *stream
	// missing are the clusters whose objects the client does not get at first.
	missing []*fault.Fault
	// unfollowed are those whose objects it gets, but no changes of them.
	unfollowed []*fault.Fault
	// resumed says that the client has objects. last says that no other form is left.
	resumed, last bool

	// accepted and silent count members that have begun an answer, or given none.
	accepted, silent int
	// refused is the first refusal, and absent the first one of a cluster that does not
	// have such objects.
	refused, absent *fault.Fault
}

// await waits until each member has begun its answer, for the members' timeout at most. It
// returns why there is no stream.
func (b *beginning) await(ctx context.Context, first []*reflector) error {
	timeout := time.NewTimer(b.s.o.MemberTimeout)
	defer timeout.Stop()
	late := false
	for _, m := range first {
		err := fault.ErrTimeout
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
		if !b.last && apierrors.IsNotAcceptable(err) {
			return err
		}
		b.add(m.member, err)
	}
	return b.failure()
}

// add notes how one member's first request went.
func (b *beginning) add(m *member, err error) {
	if err == nil || errors.Is(err, encoding.ErrExpired) {
		b.accepted++
		return
	}
	f := fault.Of(m.to.Name(), err)
	switch {
	case f.Code == 0:
		b.silent++
	case f.Code == http.StatusNotFound:
		if b.absent == nil {
			b.absent = f
		}
		return // the cluster does not have such objects: none is missing
	case b.refused == nil:
		b.refused = f
	}
	if b.s.lists(m) {
		b.unfollowed = append(b.unfollowed, f)
	} else {
		b.missing = append(b.missing, f)
	}
}

// failure returns why there is no stream: nobody has a part in it, as in a list, or some
// have none and the view wants all. A client that has objects keeps them while nobody
// answers, and its stream waits.
func (b *beginning) failure() error {
	switch {
	case b.s.o.FailWhenUnreachable && len(b.missing) > 0:
		return fault.Unreachable(b.missing)
	case b.accepted > 0, b.resumed && b.refused == nil && b.absent == nil:
		return nil
	case b.silent > 0:
		return fault.NoneAnswered(b.missing)
	case b.refused != nil:
		return b.refused
	case b.absent != nil:
		return b.absent
	}
	return nil
}

// warn adds the headers that say what the client does not get.
func (b *beginning) warn(header http.Header) {
	fault.Warn(header, b.missing, "its objects are not shown")
	fault.Warn(header, b.unfollowed, "changes of its objects are not shown")
}
