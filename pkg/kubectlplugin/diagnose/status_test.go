package diagnose

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// TestManyAreAway has more clusters away than anybody reads about.
func TestManyAreAway(t *testing.T) {
	var found []v1alpha1.Cluster
	for i := range 5000 {
		found = append(found, clitest.ClusterOf(fmt.Sprintf("c%04d", i), metav1.ConditionFalse, "Gone"))
	}
	var out, errOut bytes.Buffer
	p := &cli.Factory{Out: &out, Err: &errOut}
	printStatus(p, found, false)
	if n := strings.Count(out.String(), "\n"); n != 5001 {
		t.Errorf("the table has %d lines, want a header and 5000", n)
	}
	if text := errOut.String(); strings.Count(text, "\n") != mostExplained+2 || !strings.Contains(text, "4990 more clusters not available; -o wide has the reasons.\n0 of 5000 clusters available.\n") {
		t.Errorf("below it stands %q", text)
	}
}

// TestWatchStatus goes through what can happen between two questions.
func TestWatchStatus(t *testing.T) {
	up, away := clitest.ClusterOf("c1", metav1.ConditionTrue, ""), clitest.ClusterOf("c1", metav1.ConditionUnknown, "LeaseStopped")
	other := clitest.ClusterOf("a-cluster-with-a-long-name", metav1.ConditionTrue, "")
	busy := up
	busy.Status.Tunnels = 7
	type answer struct {
		found []v1alpha1.Cluster
		err   error
	}
	answers := []answer{
		{[]v1alpha1.Cluster{busy}, nil}, {[]v1alpha1.Cluster{away}, nil}, {nil, errors.New("hub is away")}, {nil, errors.New("hub is away")},
		{[]v1alpha1.Cluster{other, away}, nil}, {[]v1alpha1.Cluster{other}, nil},
		{[]v1alpha1.Cluster{other}, nil}, // when its tick is taken, the one before is done
	}
	ctx, cancel := context.WithCancel(t.Context())
	ticks := make(chan time.Time)
	var out, errOut bytes.Buffer
	done := make(chan error)
	go func() {
		p := &cli.Factory{Out: &out, Err: &errOut}
		done <- watchStatus(ctx, p, []v1alpha1.Cluster{up}, false, ticks, func() ([]v1alpha1.Cluster, error) {
			next := answers[0]
			answers = answers[1:]
			return next.found, next.err
		})
	}()
	for range len(answers) {
		ticks <- time.Now()
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"NAME AVAILABLE LATENCY VERSION LAST SEEN REASON", "c1 True <none> <none> <unknown> <none>", "c1 Unknown <none> <none> <unknown> LeaseStopped",
		"a-cluster-with-a-long-name True <none> <none> <unknown> <none>",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant the lines\n%s", out.String(), strings.Join(want, "\n"))
	}
	if got := errOut.String(); got != "error: hub is away\nc1 is gone, or you may not reach it any more.\n" {
		t.Errorf("beside it stands %q", got)
	}
}
