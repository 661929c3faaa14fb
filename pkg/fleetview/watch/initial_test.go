package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// initialEvents are what a cluster may do if it is asked for them.
type initialEvents int

const (
	noInitial      initialEvents = iota // 400
	allInitial                          // the objects, the bookmark, and what follows
	unmarked                            // the objects, and what follows
	endedUnmarked                       // the objects
	brokenUnmarked                      // the objects, and then the connection breaks
)

// sendInitial sends the objects as events.
func (c *cluster) sendInitial(ctx context.Context, w wants, out *io.PipeWriter) {
	c.mu.Lock()
	mode, now := c.initial, c.now
	var frames [][]byte
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		object := c.objects[name].DeepCopy()
		object.TypeMeta = configMap
		frames = append(frames, framed(encoding.Added, c.transformed(w, object, len(frames) == 0)))
	}
	if mode == allInitial {
		end := &corev1.ConfigMap{TypeMeta: configMap}
		end.ResourceVersion, end.Annotations = fmt.Sprint(now), map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		frames = append(frames, framed(encoding.Bookmark, c.transformed(w, end, len(frames) == 0)))
	}
	c.mu.Unlock()
	for _, frame := range frames {
		if _, err := out.Write(frame); err != nil {
			return
		}
	}
	switch mode {
	case endedUnmarked:
		out.Close()
	case brokenUnmarked:
		out.CloseWithError(errors.New("connection reset"))
	default:
		c.send(ctx, w, out, now)
	}
}

// TestMembersInitialEvents has members that send their objects as events, and others that
// do not. The client cannot tell.
func TestMembersInitialEvents(t *testing.T) {
	for _, mode := range []initialEvents{noInitial, allInitial, unmarked, endedUnmarked, brokenUnmarked} {
		t.Run(fmt.Sprint("mode ", mode), func(t *testing.T) {
			eachForm(t, func(t *testing.T, wants func(*Options)) { checkInitial(t, mode, wants) })
		})
	}
}

func checkInitial(t *testing.T, mode initialEvents, wants func(*Options)) {
	a, b := newCluster("a", "x", "y", "z"), newCluster("b")
	a.initial, b.initial = mode, mode
	if mode == brokenUnmarked {
		b.initial = allInitial // else nobody would be there
	}
	c := newFixture(t, a, b).watch(func(o *Options) { wants(o); o.SendInitialEvents, o.Bookmarks = new(true), true })
	defer c.stop()
	time.Sleep(30 * time.Second)
	got := withoutMarks(c.events())
	ends := slices.DeleteFunc(slices.Clone(got), func(e string) bool { return !isInitialEnd(e) })
	diff(t, "objects", []string{"ADDED a/x", "ADDED a/y", "ADDED a/z"}, sorted(slices.DeleteFunc(slices.Clone(got), isInitialEnd)))
	if last := got[len(got)-1]; len(ends) != 1 || mode != brokenUnmarked && !isInitialEnd(last) {
		t.Errorf("got %q, want one bookmark behind the initial events", got)
	}
	lists := slices.DeleteFunc(a.asked(), func(query string) bool { return strings.Contains(query, "watch") })
	if listed := len(lists) > 0; listed != (mode != allInitial) {
		t.Errorf("a was listed by %q", lists)
	}
	a.set("x")
	diff(t, "a change", []string{"MODIFIED a/x"}, c.events())
	a.cut(true)
	a.remove("y")
	a.set("new")
	time.Sleep(30 * time.Second)
	diff(t, "the difference after 410", []string{"ADDED a/new", "DELETED a/y"}, sorted(c.events()))
}

func isInitialEnd(event string) bool { return strings.HasPrefix(event, "BOOKMARK initial") }

// withoutMarks takes off bookmarks but the initial one.
func withoutMarks(events []string) []string {
	return slices.DeleteFunc(events, func(e string) bool { return strings.HasPrefix(e, encoding.Bookmark) && !isInitialEnd(e) })
}

// TestChangesAmongInitialEvents has a member that sends changes before the bookmark.
func TestChangesAmongInitialEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster("a", "x", "y")
		a.initial = unmarked
		f := newFixture(t, a)
		f.options.MemberTimeout = time.Minute
		c := f.watch(func(o *Options) { o.SendInitialEvents, o.Bookmarks = new(true), true })
		defer c.stop()
		synctest.Wait()
		a.remove("x")
		a.set("z")
		a.with(func() {
			end := &corev1.ConfigMap{}
			end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
			a.now++
			a.change(encoding.Bookmark, end)
		})
		diff(t, "all of it", []string{"ADDED a/x", "ADDED a/y", "DELETED a/x", "ADDED a/z", "BOOKMARK initial"}, c.events())
		f.set()
		time.Sleep(membersEvery)
		diff(t, "when it has left", []string{"DELETED a/y", "DELETED a/z"}, sorted(c.events()))
	})
}
