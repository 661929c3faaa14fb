package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestOlderKubernetes wants the older kube-apiserver to be what it is said to be: of the
// minor release before that of the others.
func TestOlderKubernetes(t *testing.T) {
	version := func(folder string) string {
		content, err := os.ReadFile(filepath.Join("binaries", folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)k8s\.io/kubernetes (v\S+)`).FindSubmatch(content)
		if found == nil {
			t.Fatalf("%s does not require Kubernetes", folder)
		}
		return string(found[1])
	}
	older, all := version(olderModules[0].name), version(controlPlane.name)
	minor, err := strconv.Atoi(strings.Split(all, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("v1.%d.", minor-1); older != OlderKubernetes || !strings.HasPrefix(older, want) {
		t.Errorf("the older kube-apiserver is built from %s and says %s, want %s*", older, OlderKubernetes, want)
	}
	if want := fmt.Sprint("gitMinor=", minor-1); !strings.Contains(olderModules[0].flags, want) {
		t.Errorf("it is built with %q, want %s in it", olderModules[0].flags, want)
	}
}

func TestOlderIsAManagedCluster(t *testing.T) {
	for _, name := range []string{hubName, "cluster3"} {
		options := Options{Clusters: []string{"cluster1", "cluster2"}, Older: []string{"cluster1", name}, Out: io.Discard}
		if _, err := buildOlder(t.Context(), options); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("with %s: %v; want an error that names it", name, err)
		}
	}
	if program, err := buildOlder(t.Context(), Options{}); program != "" || err != nil {
		t.Errorf("without any: %q, %v; want nothing built", program, err)
	}
}
