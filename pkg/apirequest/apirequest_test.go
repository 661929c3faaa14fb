package apirequest

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestLeavesAPI(t *testing.T) {
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	for name, tc := range map[string]struct {
		method, path string
		header       http.Header
		want         bool
	}{
		"list":                            {method: "GET", path: "/api/v1/pods"},
		"watch":                           {method: "GET", path: "/api/v1/pods?watch=true"},
		"log":                             {method: "GET", path: "/api/v1/namespaces/ns/pods/pod/log"},
		"eviction":                        {method: "POST", path: "/api/v1/namespaces/ns/pods/pod/eviction"},
		"a pod named exec":                {method: "GET", path: "/api/v1/namespaces/ns/pods/exec"},
		"exec by GET":                     {method: "GET", path: "/api/v1/namespaces/ns/pods/pod/exec", want: true},
		"exec":                            {method: "POST", path: "/api/v1/namespaces/ns/pods/pod/exec", want: true},
		"attach":                          {method: "POST", path: "/api/v1/namespaces/ns/pods/pod/attach", want: true},
		"portforward":                     {method: "POST", path: "/api/v1/namespaces/ns/pods/pod/portforward", want: true},
		"a pod's proxy":                   {method: "GET", path: "/api/v1/namespaces/ns/pods/pod/proxy", want: true},
		"below a pod's proxy":             {method: "GET", path: "/api/v1/namespaces/ns/pods/pod/proxy/x/log", want: true},
		"a node's proxy":                  {method: "GET", path: "/api/v1/nodes/node/proxy/run", want: true},
		"a Service's proxy":               {method: "GET", path: "/api/v1/namespaces/ns/services/web/proxy/", want: true},
		"the former verb":                 {method: "GET", path: "/api/v1/proxy/namespaces/ns/pods/pod", want: true},
		"an aggregated API's subresource": {method: "GET", path: "/apis/subresources.example.io/v1/namespaces/ns/machines/m/portforward", want: true},
		"a watch by WebSocket":            {method: "GET", path: "/api/v1/pods?watch=true", header: upgrade},
		"of one pod":                      {method: "GET", path: "/api/v1/namespaces/ns/pods?watch=1&fieldSelector=metadata.name%3Dpod", header: upgrade},
		"by the former path":              {method: "GET", path: "/api/v1/watch/namespaces/ns/pods", header: upgrade},
		"a list by WebSocket":             {method: "GET", path: "/api/v1/pods", header: upgrade, want: true},
		"a watch of one name":             {method: "GET", path: "/api/v1/namespaces/ns/pods/pod?watch=1", header: upgrade, want: true},
		"exec that says watch":            {method: "GET", path: "/api/v1/namespaces/ns/pods/pod/exec?watch=1", header: upgrade, want: true},
		"exec by the former path":         {method: "GET", path: "/api/v1/watch/namespaces/ns/pods/pod/exec", header: upgrade, want: true},
		"a console":                       {method: "GET", path: "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm/console?watch=1", header: upgrade, want: true},
		"a console by the former path":    {method: "GET", path: "/apis/subresources.kubevirt.io/v1/watch/namespaces/ns/virtualmachineinstances/vm/console", header: upgrade, want: true},
		"a watch by POST":                 {method: "POST", path: "/api/v1/watch/namespaces/ns/pods", header: upgrade, want: true},
		"a watch by SPDY":                 {method: "GET", path: "/api/v1/pods?watch=true", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, want: true},
		"a watch by two protocols":        {method: "GET", path: "/api/v1/pods?watch=true", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket", "SPDY/3.1"}}, want: true},
		"a watch by a list of them":       {method: "GET", path: "/api/v1/pods?watch=true", header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket, SPDY/3.1"}}, want: true},
		"watch is no resource":            {method: "GET", path: "/watch?watch=true", header: upgrade, want: true},
		"Connection alone":                {method: "GET", path: "/version", header: http.Header{"Connection": {"x, Upgrade"}}, want: true},
		"CONNECT":                         {method: "CONNECT", path: "/", want: true},
	} {
		r := httptest.NewRequest(tc.method, "http://host"+tc.path, nil)
		r.Header = tc.header
		info, err := Resolver.NewRequestInfo(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := LeavesAPI(r, info); got != tc.want {
			t.Errorf("%s: %t, want %t (read as %+v)", name, got, tc.want, info)
		}
		if tc.header == nil && tc.method != "CONNECT" && LeavesByPath(info) != tc.want {
			t.Errorf("%s: by its path %t, want %t", name, !tc.want, tc.want)
		}
	}
}

func TestIsDryRun(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		hasBody      bool
		want         bool
	}{
		"creating":                  {method: "POST", path: "/api/v1/namespaces/ns/pods?dryRun=All", hasBody: true, want: true},
		"creating in truth":         {method: "POST", path: "/api/v1/namespaces/ns/pods", hasBody: true},
		"updating":                  {method: "PUT", path: "/api/v1/namespaces/ns/pods/pod?dryRun=All", hasBody: true, want: true},
		"patching the status":       {method: "PATCH", path: "/api/v1/namespaces/ns/pods/pod/status?dryRun=All&fieldManager=x", hasBody: true, want: true},
		"scaling":                   {method: "PUT", path: "/apis/apps/v1/namespaces/ns/deployments/web/scale?dryRun=All", hasBody: true, want: true},
		"deleting":                  {method: "DELETE", path: "/api/v1/namespaces/ns/pods/pod?dryRun=All", want: true},
		"deleting with options":     {method: "DELETE", path: "/api/v1/namespaces/ns/pods/pod?dryRun=All", hasBody: true},
		"deleting all":              {method: "DELETE", path: "/api/v1/namespaces/ns/pods?dryRun=All", want: true},
		"deleting all with options": {method: "DELETE", path: "/api/v1/namespaces/ns/pods?dryRun=All", hasBody: true},
		"evicting":                  {method: "POST", path: "/api/v1/namespaces/ns/pods/pod/eviction?dryRun=All"},
		"a token":                   {method: "POST", path: "/api/v1/namespaces/ns/serviceaccounts/sa/token?dryRun=All"},
		"exec":                      {method: "POST", path: "/api/v1/namespaces/ns/pods/pod/exec?dryRun=All"},
		"reading":                   {method: "GET", path: "/api/v1/pods?dryRun=All"},
		"no resource":               {method: "POST", path: "/x?dryRun=All"},
		"another value":             {method: "POST", path: "/api/v1/namespaces/ns/pods?dryRun=all"},
		"an empty value":            {method: "POST", path: "/api/v1/namespaces/ns/pods?dryRun="},
		"two values":                {method: "POST", path: "/api/v1/namespaces/ns/pods?dryRun=All&dryRun=None"},
		"another parameter":         {method: "POST", path: "/api/v1/namespaces/ns/pods?dryrun=All"},
		"a query that is none":      {method: "POST", path: "/api/v1/namespaces/ns/pods?dryRun=All;x=y"},
		"an escape":                 {method: "POST", path: "/api/v1/namespaces/ns/pods?dry%52un=%41ll", want: true},
	} {
		r := httptest.NewRequest(tc.method, "http://host"+tc.path, nil)
		info, err := Resolver.NewRequestInfo(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := IsDryRun(info, "?"+r.URL.RawQuery, tc.hasBody); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
