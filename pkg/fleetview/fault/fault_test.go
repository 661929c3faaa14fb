package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		code       int
		body       string
		want       string
		wantStatus int32
	}{
		"a Status":               {403, `{"kind":"Status","message":"user ann may not","reason":"Forbidden","code":7}`, "refused (user ann may not)", 403},
		"a Status without words": {403, `{"kind":"Status"}`, "refused (403 Forbidden)", 403},
		"a text":                 {429, "Too many requests,\n try again", "refused (429 Too Many Requests: Too many requests, try again)", 429},
		"a long text":            {500, strings.Repeat("é", 1<<20), "refused (500 Internal Server Error: " + strings.Repeat("é", 100) + "...)", 500},
		"another kind":           {404, `{"kind":"Pod"}`, `refused (404 Not Found: {"kind":"Pod"})`, 404},
		"nothing":                {502, "", "refused (502 Bad Gateway)", 502},
		"a redirect":             {302, "elsewhere", "did not answer (302 Found)", 503},
		"no content":             {204, "", "did not answer (204 No Content)", 503},
		"no code of HTTP":        {999, "x", "did not answer (999 )", 503},
	} {
		f := Read("a", &http.Response{StatusCode: test.code, Body: io.NopCloser(strings.NewReader(test.body))})
		if got := f.Outcome(); got != test.want {
			t.Errorf("%s: got %.300q, want %q", name, got, test.want)
		}
		if got := f.Status().Code; got != test.wantStatus {
			t.Errorf("%s: the client gets %d, want %d", name, got, test.wantStatus)
		}
	}
}

func TestOf(t *testing.T) {
	refused := &Fault{Cluster: "a", Code: 403, Reason: "no"}
	if got := Of("a", fmt.Errorf("asking: %w", refused)); got != refused {
		t.Errorf("got %+v, want the refusal that the error has", got)
	}
	if got := Of("a", fmt.Errorf("reading: %w", ErrTimeout)); !got.Slow || got.Code != 0 {
		t.Errorf("got %+v for a timeout, want a slow cluster", got)
	}
	if got := Of("a", fmt.Errorf("dialing: %w", ErrAway)); !got.Away || got.Slow || got.Code != 0 {
		t.Errorf("got %+v, want a cluster that is away", got)
	}
}

func TestWarn(t *testing.T) {
	header := http.Header{}
	Warn(header, []*Fault{
		{Cluster: "c", Reason: strings.Repeat("x", 1<<20)}, {Cluster: "a", Code: 403, Reason: "no \"right\"\r\nX: y\x00\u0085"},
		{Cluster: "b", Reason: "no tunnel", Since: time.Date(2026, 11, 1, 10, 2, 0, 0, time.UTC)},
	}, "its objects are not shown")
	want := []string{
		`299 - "cluster a refused (no \"right\"  X: y  ); its objects are not shown"`,
		`299 - "cluster b did not answer (no tunnel); its answer of 10:02:00 UTC is used"`,
		`299 - "cluster c did not answer (` + strings.Repeat("x", 484) + `...; its objects are not shown"`,
	}
	if diff := cmp.Diff(want, header["Warning"]); diff != "" {
		t.Errorf("Warnings (-want +got):\n%s", diff)
	}
	header = http.Header{}
	faults := make([]*Fault, MaxNamed+2)
	for i := range faults {
		faults[i] = &Fault{Cluster: fmt.Sprintf("c%02d", i), Reason: "no tunnel"}
	}
	Warn(header, faults, "its objects are not shown")
	if got := header["Warning"]; len(got) != MaxNamed+1 || got[MaxNamed] != `299 - "2 more clusters did not answer; their objects are not shown"` {
		t.Errorf("got Warnings %q, want ten and a count", got)
	}
	header = http.Header{}
	Warn(header, faults[:MaxNamed+1], "its objects are not shown")
	if got := header["Warning"]; len(got) != MaxNamed+1 || got[MaxNamed] != `299 - "1 more cluster did not answer; its objects are not shown"` {
		t.Errorf("got Warnings %q, want ten and one more", got)
	}
}

// TestRetryAfter wants the header for errors of a moment only: clients obey it ten times.
// Of a request in which no cluster has a part, the error says who did not answer and who refused.
func TestAllFailed(t *testing.T) {
	away := &Fault{Cluster: "away", Reason: "no agent", Away: true}
	refusal := &Fault{Cluster: "guarded", Code: http.StatusForbidden, Reason: "pods is forbidden"}
	for _, test := range []struct {
		failures []*Fault
		code     int
		want     []string
	}{
		{[]*Fault{away}, http.StatusServiceUnavailable, []string{`cluster "away" did not answer (no agent)`}},
		{[]*Fault{refusal, away}, http.StatusServiceUnavailable, []string{`cluster "away" did not answer (no agent)`, "cluster guarded refused (pods is forbidden)"}},
		{[]*Fault{refusal}, http.StatusForbidden, []string{"pods is forbidden"}},
	} {
		w := httptest.NewRecorder()
		Write(w, AllFailed(test.failures, nil))
		var answer metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		for _, want := range test.want {
			if w.Code != test.code || !strings.Contains(answer.Message, want) {
				t.Errorf("%v: got %d %q, want %d and %q", test.failures, w.Code, answer.Message, test.code, want)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	away := []*Fault{{Cluster: "a", Reason: "no tunnel"}, {Cluster: "b", Code: 500, Reason: "etcd"}}
	busy := Fault{Cluster: "a", Code: 429, Reason: "busy"}
	busy.Answer.Kind, busy.Answer.Code = "Status", 429
	busy.Answer.Details = Unreachable(away).ErrStatus.Details
	busy.Answer.Details.RetryAfterSeconds = 3600
	for name, test := range map[string]struct {
		err  error
		code int
		want string
	}{
		"no tunnel":              {Unreachable(away), 503, "1"},
		"one is frozen":          {Unreachable(append(away, &Fault{Cluster: "c", Slow: true})), 503, ""},
		"one is away":            {Unreachable(append(away, &Fault{Cluster: "c", Away: true})), 503, ""},
		"any, one is away":       {NoneAnswered(append(away, &Fault{Cluster: "c", Away: true})), 503, "1"},
		"any, one is frozen":     {NoneAnswered(append(away, &Fault{Cluster: "c", Slow: true})), 503, ""},
		"any, all are away":      {NoneAnswered([]*Fault{{Cluster: "a", Away: true}, {Cluster: "b", Away: true}}), 503, ""},
		"any, and a refusal":     {NoneAnswered([]*Fault{{Cluster: "a", Away: true}, {Cluster: "b", Code: 403}}), 503, ""},
		"a cluster that is away": {&Fault{Cluster: "a", Away: true}, 503, ""},
		"the view refuses":       {Refuse(http.StatusBadRequest, "no"), 400, ""},
		"a member's number":      {&busy, 429, "1"},
		"a member's own error":   {&Fault{Cluster: "a", Code: 403, Reason: "no"}, 403, ""},
		"another error":          {errors.New("a bug"), 500, ""},
	} {
		recorder := httptest.NewRecorder()
		Write(recorder, test.err)
		if got := recorder.Header().Get("Retry-After"); recorder.Code != test.code || got != test.want {
			t.Errorf("%s: got %d with Retry-After %q, want %d with %q", name, recorder.Code, got, test.code, test.want)
		}
	}
}
