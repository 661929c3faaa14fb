package fleetview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/request"
)

// maxReview bounds a review, and maxReviewed the answer of a member. They are decoded, which takes up to
// twenty times as much.
const (
	maxReview   = 64 << 10
	maxReviewed = 256 << 10
)

// reviewKinds are the kinds of reviews by resource, and the field of a status by which one is known.
var reviewKinds = map[string]struct{ kind, field string }{
	"selfsubjectaccessreviews":  {"SelfSubjectAccessReview", "allowed"},
	"localsubjectaccessreviews": {"LocalSubjectAccessReview", "allowed"},
	"subjectaccessreviews":      {"SubjectAccessReview", "allowed"},
	"selfsubjectrulesreviews":   {"SelfSubjectRulesReview", "resourceRules"},
	"selfsubjectreviews":        {"SelfSubjectReview", "userInfo"},
}

// review asks all members, and answers for the view: what one cluster allows is allowed in the
// view, and the reason says where.
func (h *Handler) review(w http.ResponseWriter, r *http.Request, q *request.Request) error {
	if q.Info.Resource == "tokenreviews" {
		return fault.Refuse(http.StatusMethodNotAllowed, "each cluster of a view has tokens of its own: make the TokenReview on one cluster")
	}
	if _, ok := reviewKinds[q.Info.Resource]; !ok {
		return fault.Refuse(http.StatusNotFound, fmt.Sprintf("a view makes no %s of API group %q: ask one cluster", q.Info.Resource, q.Info.APIGroup))
	}
	accepted, err := request.Forms(r)
	if err != nil {
		return err
	}
	body, err := readBody(w, r, maxReview, "the review")
	if err != nil {
		return err
	}
	contentType, body := inJSON(r.Header.Get("Content-Type"), body)
	body, err = chooseByReview(q, contentType, body)
	if err != nil {
		return err
	}
	if len(q.Members) == 0 {
		return q.NoCluster()
	}
	ask := fleet.Question{Method: http.MethodPost, Path: q.Path.String(), Query: q.Query, Accept: fleet.JSONType, Timeout: q.View.Timeout,
		Body: body, ContentType: contentType}
	answers, failures := h.readReviews(ask.AskAll(r.Context(), q.Members), q)
	if len(answers) == 0 {
		return fault.AllFailed(failures, nil)
	}
	review := mergeReviews(q, answers, failures)
	merged, err := json.Marshal(review)
	if err != nil {
		return fault.Refuse(http.StatusBadGateway, fmt.Sprintf("writing the review: %v", err))
	}
	header := w.Header()
	header.Set("Content-Type", accepted[0].ContentType)
	header.Set("Cache-Control", "no-cache, private")
	warnOfPart(header, review["status"].(map[string]any))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(merged) // an error is the client's: it has gone
	return nil
}

// inJSON writes a review that came in protobuf, as kubectl auth can-i sends it, in JSON if it may
// name a cluster. Others go on as they came, with the fields that nobody here knows.
func inJSON(contentType string, body []byte) (string, []byte) {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil || media != request.ProtobufType || !bytes.Contains(body, []byte("@")) {
		return contentType, body
	}
	review, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return contentType, body // the clusters say what is wrong
	}
	review.GetObjectKind().SetGroupVersionKind(*kind)
	text, err := json.Marshal(review)
	if err != nil {
		return contentType, body
	}
	return fleet.JSONType, text
}

// chooseByReview takes the cluster off NAMESPACE@CLUSTER and NAME@CLUSTER of a review in JSON, and
// asks that cluster alone.
func chooseByReview(q *request.Request, contentType string, body []byte) ([]byte, error) {
	if media, _, err := mime.ParseMediaType(contentType); contentType != "" && (err != nil || media != fleet.JSONType) {
		return body, nil
	}
	var review map[string]any
	if json.Unmarshal(body, &review) != nil {
		return body, nil // the clusters say what is wrong
	}
	chosen := false
	spec, _ := review["spec"].(map[string]any)
	attributes, _ := spec["resourceAttributes"].(map[string]any)
	for _, where := range []struct {
		in  map[string]any
		key string
	}{{attributes, "namespace"}, {attributes, "name"}, {spec, "namespace"}} {
		text, _ := where.in[where.key].(string)
		plain, cluster, ok := request.CutLast(text)
		if !ok || where.key == "name" && !slices.Contains(q.Everyone, cluster) {
			continue
		}
		where.in[where.key], chosen = plain, true
		q.Choose(cluster)
	}
	if !chosen {
		return body, nil
	}
	return json.Marshal(review)
}

// reviewed is a review as a cluster answered it.
type reviewed struct {
	cluster string
	object  map[string]any
	status  map[string]any
}

// readReviews reads the answers of members.
func (h *Handler) readReviews(answers []fleet.Answer, q *request.Request) (all []reviewed, failures []*fault.Fault) {
	held := h.held.Begin(q.View.User)
	defer held.Forget()
	for _, a := range answers {
		if a.Failure != nil {
			failures = append(failures, a.Failure)
			continue
		}
		content, failed := a.Read(held)
		one := reviewed{cluster: a.Member.Name()}
		if failed == nil && len(content) <= maxReviewed && json.Unmarshal(content, &one.object) == nil {
			one.status, _ = one.object["status"].(map[string]any)
		}
		// No cluster says for all what kind of answer it is: the path does.
		of := reviewKinds[q.Info.Resource]
		_, ok := one.status[of.field]
		if failed == nil && (!ok || one.object["kind"] != of.kind) {
			failed = fault.Of(a.Member.Name(), errors.New("its answer is no review"))
		}
		if failed != nil {
			failures = append(failures, failed)
			continue
		}
		all = append(all, one)
	}
	return all, failures
}

// mergeReviews makes one answer of several. It changes the first one.
func mergeReviews(q *request.Request, answers []reviewed, failures []*fault.Fault) map[string]any {
	switch reviewKinds[q.Info.Resource].field {
	case "allowed":
		answers[0].object["status"] = mergeAccess(answers, failures)
	case "resourceRules":
		answers[0].object["status"] = mergeRules(answers, failures)
	default:
		answers[0].object["status"] = mostSay(answers)
	}
	return answers[0].object
}

// mostSay returns the status that most clusters answer, and of equally many the first: who the user
// is, each cluster but the hub's own says in the same words, and one alone does not say it for all.
func mostSay(answers []reviewed) map[string]any {
	count, texts := map[string]int{}, make([]string, len(answers))
	for i, a := range answers {
		text, _ := json.Marshal(a.status) // it was decoded, and so it encodes, with its keys in order
		texts[i] = string(text)
		count[texts[i]]++
	}
	most := 0
	for i, text := range texts {
		if count[text] > count[texts[most]] {
			most = i
		}
	}
	return answers[most].status
}

// mergeAccess is allowed where one cluster allows it, and says where.
func mergeAccess(answers []reviewed, failures []*fault.Fault) map[string]any {
	var allowing, refusing, reasons []string
	for _, a := range answers {
		if allowed, _ := a.status["allowed"].(bool); allowed {
			allowing = append(allowing, a.cluster)
			continue
		}
		refusing = append(refusing, a.cluster)
		if reason, _ := a.status["reason"].(string); reason != "" && len(reasons) < fault.MaxNamed {
			reasons = append(reasons, a.cluster+": "+fault.OneLine(reason, maxShown))
		}
	}
	status := map[string]any{"allowed": len(allowing) > 0}
	var parts []string
	if len(allowing) > 0 {
		parts = append(parts, "allowed on "+fleet.SomeOf(allowing))
	}
	if len(refusing) > 0 {
		parts = append(parts, notAllowed+fleet.SomeOf(refusing))
	}
	if len(allowing) == 0 {
		parts = append(parts, reasons...)
	}
	if len(failures) > 0 {
		status["evaluationError"] = fault.Outcomes(failures)
	}
	status["reason"] = strings.Join(parts, "; ")
	return status
}

// warnOfPart warns of a yes that is not one of all clusters: kubectl shows the reason of a no only.
func warnOfPart(header http.Header, status map[string]any) {
	reason, _ := status["reason"].(string)
	failed, _ := status["evaluationError"].(string)
	if allowed, _ := status["allowed"].(bool); !allowed || failed == "" && !strings.Contains(reason, notAllowed) {
		return
	}
	if failed != "" {
		reason += "; " + failed
	}
	fault.AddWarning(header, fault.OneLine(reason, fault.MaxWarning))
}

// notAllowed begins the part of a reason that names clusters which do not allow something.
const notAllowed = "not allowed on "

// maxShown bounds what is shown of one cluster's words.
const maxShown = 300

// mergeRules has the rules of all clusters.
func mergeRules(answers []reviewed, failures []*fault.Fault) map[string]any {
	status := map[string]any{"incomplete": len(failures) > 0}
	for _, key := range []string{"resourceRules", "nonResourceRules"} {
		seen, rules := map[string]bool{}, []any{}
		for _, a := range answers {
			list, _ := a.status[key].([]any)
			for _, rule := range list {
				if text, err := json.Marshal(rule); err == nil && !seen[string(text)] {
					seen[string(text)] = true
					rules = append(rules, rule)
				}
			}
		}
		status[key] = rules
	}
	var problems []string
	for _, a := range answers {
		if incomplete, _ := a.status["incomplete"].(bool); incomplete {
			status["incomplete"] = true
		}
		if problem, _ := a.status["evaluationError"].(string); problem != "" && len(problems) < fault.MaxNamed {
			problems = append(problems, a.cluster+": "+fault.OneLine(problem, maxShown))
		}
	}
	if len(failures) > 0 {
		problems = append(problems, fault.Outcomes(failures))
	}
	if len(problems) > 0 {
		status["evaluationError"] = strings.Join(problems, "; ")
	}
	return status
}
