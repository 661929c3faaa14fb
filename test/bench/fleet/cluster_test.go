//go:build benchfleet

package fleet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// simulatedCluster answers lists and watches of pods as a kube-apiserver does. It makes
// each pod when it writes it, so it can have as many as a test wants.
type simulatedCluster struct {
	name   string
	pods   int
	silent bool
	// item and row are a pod in a list and in a Table, in parts between which its number is.
	item, row []string
	lists     atomic.Int64
}

const (
	// numberOf stands for a pod's number in what is made of it.
	numberOf = "00000"
	// itemBytes is the size of one pod's JSON, as it is in the lab.
	itemBytes = 9500
	// podColumns are those of kubectl get pods.
	podColumns = `[{"name":"Name","type":"string","format":"name","description":"","priority":0},{"name":"Ready","type":"string","format":"","description":"","priority":0},` +
		`{"name":"Status","type":"string","format":"","description":"","priority":0},{"name":"Restarts","type":"string","format":"","description":"","priority":0},` +
		`{"name":"Age","type":"string","format":"","description":"","priority":0},{"name":"IP","type":"string","format":"","description":"","priority":1},` +
		`{"name":"Node","type":"string","format":"","description":"","priority":1}]`
)

func newSimulatedCluster(name string, pods int, silent bool) *simulatedCluster {
	pod := benchPod(name, 0)
	pod.Namespace, pod.UID, pod.ResourceVersion = benchNamespace, types.UID("6c1d2f7e-93b4-4c1e-8d55-1a2b3c4"+numberOf), "1000"
	pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC))
	pod.Spec.RestartPolicy, pod.Spec.NodeName = corev1.RestartPolicyAlways, "node-1"
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}
	fields := map[string]any{}
	for _, c := range pod.Spec.Containers {
		for _, e := range c.Env {
			fields[fmt.Sprintf(`k:{"name":%q,"in":%q}`, e.Name, c.Name)] = map[string]any{".": struct{}{}, "f:name": struct{}{}, "f:value": struct{}{}}
		}
	}
	raw := encoded(map[string]any{"f:spec": map[string]any{"f:containers": fields}})
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: raw}}}
	if missing := itemBytes - len(encoded(pod)); missing > 0 {
		pod.Spec.Containers[0].Args = []string{strings.Repeat("a", missing)}
	}
	row := encoded(map[string]any{
		"cells":  []string{pod.Name, "2/2", "Running", "0", "5m", "10.0.0.1", "node-1"},
		"object": metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: pod.ObjectMeta},
	})
	return &simulatedCluster{name: name, pods: pods, silent: silent, item: strings.Split(string(encoded(pod)), numberOf), row: strings.Split(string(row), numberOf)}
}

func encoded(object any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // of strings
	}
	return text
}

func (c *simulatedCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.silent {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch {
	case r.URL.Path != podsPath:
		refuseTo(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case query.Get("watch") != "":
		_ = http.NewResponseController(w).Flush() // nothing happens here
		<-r.Context().Done()
	default:
		c.lists.Add(1)
		c.list(w, r)
	}
}

func refuseTo(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	w.WriteHeader(int(code))
	_, _ = w.Write(encoded(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: code}))
}

func (c *simulatedCluster) list(w http.ResponseWriter, r *http.Request) {
	text, mine := strings.CutPrefix(r.URL.Query().Get("continue"), c.name+"-")
	if text != "" && !mine {
		refuseTo(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	first, _ := strconv.Atoi(text)
	last := c.pods
	meta := map[string]any{"resourceVersion": "1000"}
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && first+limit < c.pods {
		last = first + limit
		meta["continue"], meta["remainingItemCount"] = fmt.Sprint(c.name, "-", last), c.pods-last
	}
	begin, parts := `{"kind":"PodList","apiVersion":"v1","metadata":`+string(encoded(meta))+`,"items":[`, c.item
	if strings.Contains(r.Header.Get("Accept"), "as=Table") {
		begin, parts = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":`+string(encoded(meta))+`,"columnDefinitions":`+podColumns+`,"rows":[`, c.row
	}
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.WriteString(begin)
	for i := first; i < last; i++ {
		if i > first {
			_ = out.WriteByte(',')
		}
		_, _ = out.WriteString(strings.Join(parts, fmt.Sprintf("%05d", i)))
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush()
}

// simulate starts members and a view of them.
func simulate(t *testing.T, spec simulated) (members []place, control, view place, viewProcess string) {
	t.Helper()
	clusters := startChild(t, "members", spec)
	process := startChild(t, "view", clusters.Members)
	for _, address := range clusters.Members {
		members = append(members, plainPlace(t, address))
	}
	return slices.Clip(members), plainPlace(t, clusters.Control), plainPlace(t, process.View), process.dir
}
