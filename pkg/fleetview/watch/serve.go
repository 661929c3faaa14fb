package watch

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// Serve answers one watch of a view. It returns when the stream has ended and all its
// goroutines have.
func Serve(w http.ResponseWriter, r *http.Request, o Options) {
	var err error
	for i, wants := range o.Forms {
		last := i+1 == len(o.Forms)
		if err = o.serve(w, r, wants.NewCodec(), last); last || !apierrors.IsNotAcceptable(err) {
			break
		}
	}
	if err != nil {
		fault.Write(w, err)
	}
}

// serve answers the watch with objects of one form. The error, for which nothing was
// answered, is a refusal with 406 if a member does not have the form, and it is not the last.
func (o Options) serve(w http.ResponseWriter, r *http.Request, form encoding.Codec, last bool) error {
	from, start, err := o.from(r.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	s := newStream(o, form, cancel, start, from)
	f := &fleet{s: s, from: from, now: map[string]*reflector{}}
	defer f.end()
	if !f.resume(o.Now) {
		return &apierrors.StatusError{ErrStatus: *expired()}
	}
	begun := &beginning{s: s, resumed: start.Time != 0, last: last}
	err = begun.await(ctx, f.begin(ctx, o.Now))
	switch {
	case ctx.Err() != nil:
		return s.failure()
	case err != nil:
		return err
	}
	begun.warn(w.Header())
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	if http.NewResponseController(w).Flush() != nil {
		return nil
	}
	s.begin()
	s.running.Go(func() { f.follow(ctx) })
	s.write(ctx, w)
	return nil
}

// from returns the members' versions that the stream goes on from, and the view's.
func (o Options) from(ctx context.Context) (map[string]string, version.Version, error) {
	if o.anew() {
		return nil, version.Version{}, nil
	}
	v, err := version.Parse(o.ResourceVersion)
	ofCluster := version.OfMember(o.ResourceVersion) != 0 // from when the view had one cluster and could have no other
	tooOld := &apierrors.StatusError{ErrStatus: *expired()}
	switch {
	case ofCluster && !o.wantsInitialEvents():
		return nil, version.Version{}, tooOld
	case err != nil && !ofCluster:
		return nil, version.Version{}, apierrors.NewBadRequest(err.Error())
	}
	o.Clock.Follow(v.Time) // unless it is far ahead, which anyone can write
	if o.wantsInitialEvents() {
		// All that there is now is not older than any version. None is 410: an informer that gets
		// that may list next without a version, as people do, whose lists wait for no cluster.
		return nil, version.Version{}, nil
	}
	from, ok := o.Positions.Find(ctx, v, o.Owner)
	if !ok {
		return nil, version.Version{}, tooOld
	}
	for _, at := range from {
		if at == "0" {
			return nil, version.Version{}, tooOld
		}
	}
	// Far ahead as well, since a replica has issued it: what follows must be greater.
	o.Clock.After(v.Time)
	return from, v.Moment(), nil
}
