package diagnose

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

func FuzzStatus(f *testing.F) {
	clitest.AddHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := clitest.NewTerminal()
		status := v1alpha1.ClusterStatus{Available: metav1.ConditionStatus("not " + text), Version: text, Reason: text, Message: text}
		cluster := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: text}, Status: status}
		found := []v1alpha1.Cluster{cluster, cluster}
		printStatus(p, found, true)
		clitest.WantText(t, out.String(), 3+2+1)
	})
}

func FuzzCheck(f *testing.F) {
	clitest.AddHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := clitest.NewTerminal()
		printFinding(p, finding{ID: "id", Cluster: text, Text: text, Remedy: "do " + text})
		clitest.WantText(t, out.String(), 2)
	})
}
