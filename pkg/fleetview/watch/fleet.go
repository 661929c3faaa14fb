package watch

import (
	"context"
	"slices"
	"time"
)

// fleet is which members a stream has.
type fleet struct {
	s *stream
	// from has the members' versions that the stream went on from, by UID. Members that were away
	// since are in it.
	from map[string]string
	now  map[string]*reflector
}

// resume prepares the stream for its members. It reports false if a cluster has left the
// view since the position: it is not known which objects the client has of it.
func (f *fleet) resume(members []Member) bool {
	if f.s.o.wantsInitialEvents() {
		f.s.initial = map[*member]bool{}
	}
	return f.away(members) == ""
}

// away returns the UID of a cluster that is in the position and not among the members; it
// is empty if there is none.
func (f *fleet) away(members []Member) string {
	for uid := range f.from {
		if !slices.ContainsFunc(members, func(m Member) bool { return m.UID() == uid }) {
			return uid
		}
	}
	return ""
}

// begin starts the stream's first members.
func (f *fleet) begin(ctx context.Context, members []Member) []*reflector {
	var first []*reflector
	for _, to := range members {
		r := f.prepare(to)
		r.silent = f.s.o.fromNow()
		first = append(first, r)
	}
	context.AfterFunc(ctx, f.s.await())
	for _, r := range first {
		f.start(ctx, r)
	}
	return first
}

// prepare makes a member that goes on from where the client is.
func (f *fleet) prepare(to Member) *reflector {
	uid := to.UID()
	r := newReflector(f.s, to, f.from[uid])
	f.s.join(r.member)
	// A cluster that leaves and joins again is one that the client has nothing of.
	delete(f.from, uid)
	f.now[to.Name()] = r
	return r
}

func (f *fleet) start(ctx context.Context, r *reflector) {
	ctx, r.cancel = context.WithCancel(ctx)
	f.s.running.Go(func() { r.run(ctx) })
}

// follow sees clusters that join and leave, until ctx ends.
func (f *fleet) follow(ctx context.Context) {
	every := f.s.o.MembersEvery
	if every == 0 {
		every = membersEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// Which clusters there are is not known after an error: all stay.
		if members, err := f.s.o.Members(ctx); err == nil && ctx.Err() == nil {
			f.reconcile(ctx, members)
		}
	}
}

func (f *fleet) reconcile(ctx context.Context, members []Member) {
	for name, r := range f.now {
		i := slices.IndexFunc(members, func(to Member) bool { return to.Name() == name })
		if i >= 0 && members[i].UID() == r.to.UID() {
			continue
		}
		r.cancel()
		f.s.dismiss(r.member)
		<-r.done
		delete(f.now, name)
		r.leave()
		f.s.drop(r.member)
	}
	for _, to := range members {
		if f.now[to.Name()] == nil {
			f.start(ctx, f.prepare(to))
		}
	}
	// Every cluster is here or gone, so one that has not come back has left.
	if f.away(members) != "" {
		f.s.expire()
	}
}

// end ends the stream, and waits for its goroutines.
func (f *fleet) end() {
	f.s.stop()
	f.s.running.Wait()
	f.s.o.Positions.End(f.s.record)
}
