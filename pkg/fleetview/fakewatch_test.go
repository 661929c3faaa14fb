package fleetview

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	reading "open-cluster-management.io/cluster-proxy/pkg/apirequest"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// serveWatch sends what has changed since a version until the client has gone. Initial
// events are all changes, and a bookmark behind them.
func (c *cluster) serveWatch(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	accept := r.Header.Get("Accept")
	w.Header().Set("Content-Type", fleet.JSONType)
	w.WriteHeader(http.StatusOK)
	marked := r.URL.Query().Get("sendInitialEvents") != "true"
	for headers := true; ; {
		c.mu.Lock()
		changed := c.changed
		var events []change
		for _, event := range c.history {
			if event.version > from && about(event.path, info) {
				events, from = append(events, event), event.version
			}
		}
		if !marked {
			marked = true
			of := strings.TrimPrefix(info.APIGroup+"/"+info.APIVersion, "/")
			end := object{"kind": kinds[info.Resource], "apiVersion": of, "metadata": map[string]any{"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}}}
			events = append(events, change{c.version, "BOOKMARK", "", end})
		}
		c.mu.Unlock()
		for _, event := range events {
			if _, err := w.Write(c.event(accept, event, headers)); err != nil {
				return
			}
			headers = false
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// about reports whether a request for a collection is about the object at a path.
func about(path string, info *apirequest.RequestInfo) bool {
	r, _ := http.NewRequest(http.MethodGet, path, nil)
	of, err := reading.Resolver.NewRequestInfo(r)
	return err == nil && of.APIGroup == info.APIGroup && of.Resource == info.Resource && (info.Namespace == "" || of.Namespace == info.Namespace)
}

// event is an event as a watch has it. Tables have their headers in the first one.
func (c *cluster) event(accept string, event change, headers bool) []byte {
	o, meta := maps.Clone(event.object), maps.Clone(event.object.meta())
	meta["resourceVersion"] = strconv.Itoa(event.version)
	o["metadata"] = meta
	var document any = o
	switch {
	case strings.Contains(accept, "as=Table"):
		table := c.table(metav1.ListMeta{ResourceVersion: strconv.Itoa(event.version)}, []object{o}).(map[string]any)
		if !headers {
			table["columnDefinitions"] = nil
		}
		document = table
	case strings.Contains(accept, "as=PartialObjectMetadata"):
		o["kind"], o["apiVersion"] = "PartialObjectMetadata", "meta.k8s.io/v1"
		document = object{"kind": o["kind"], "apiVersion": o["apiVersion"], "metadata": meta}
	}
	encoded, err := json.Marshal(document)
	if err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", event.kind, encoded)
}
