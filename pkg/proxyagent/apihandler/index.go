package apihandler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// maxReview bounds the body of a review, and maxDecision the kube-apiserver's answer to a question.
	maxReview, maxDecision = 256 << 10, 64 << 10
	// maxAsked is how many questions of a review are asked at a time.
	maxAsked = 16
	// ownerPause is how often a stream of rows asks whether the owner's policy still allows it.
	ownerPause = 5 * time.Second
)

// forIndex answers the fleet index. api leads to the kube-apiserver.
func (a Access) forIndex(api http.Handler) http.Handler {
	asUser := a.filter(api)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.checkIndex(); err != nil {
			a.forbid(w, r, "owner", err)
			return
		}
		switch {
		case a.Index == nil:
			refuse(w, http.StatusNotFound, "this agent does not send rows: its configuration has no fleet index")
		case r.URL.Path == "/index":
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			go a.endUnwanted(ctx, cancel)
			a.Index.ServeHTTP(w, r.WithContext(ctx))
		case r.URL.Path == "/reviews" && r.Method == http.MethodPost:
			answerReview(w, r, asUser)
		default:
			refuse(w, http.StatusForbidden, "the fleet index may ask for /index and /reviews only")
		}
	})
}

// checkIndex is the error of a request of the fleet index that the owner does not want.
func (a Access) checkIndex() error {
	if a.Owner == nil {
		return nil
	}
	policy, err := a.Owner()
	if err != nil {
		return err
	}
	return policy.CheckIndex()
}

// endUnwanted ends a stream when the owner does not want it any more.
func (a Access) endUnwanted(ctx context.Context, end func()) {
	tick := time.NewTicker(ownerPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if a.checkIndex() != nil {
			end()
			return
		}
	}
}

// answerReview asks the questions of a review as the user of the request.
func answerReview(w http.ResponseWriter, r *http.Request, asUser http.Handler) {
	if !agentapi.Has(r.Header, agentapi.FrontProxy) {
		refuse(w, http.StatusBadRequest, "a review is about a user whom the hub knows")
		return
	}
	var review feed.Review
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&review)
	if err == nil && len(review.Questions) > feed.MaxQuestions {
		err = fmt.Errorf("it has %d questions, more than %d", len(review.Questions), feed.MaxQuestions)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the review cannot be answered: "+err.Error())
		return
	}
	decisions := feed.Decisions{Decisions: make([]feed.Decision, len(review.Questions))}
	var group errgroup.Group
	group.SetLimit(maxAsked)
	for i, question := range review.Questions {
		group.Go(func() error {
			decisions.Decisions[i] = ask(r, asUser, question)
			return nil
		})
	}
	_ = group.Wait() // no question returns an error
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(decisions) // the index is gone
}

// ask asks one question as the user of a request.
func ask(r *http.Request, asUser http.Handler, q feed.Question) (d feed.Decision) {
	// ReverseProxy ends an answer that is cut off, or too long, by a panic for the server.
	defer func() {
		switch ended := recover(); ended {
		case nil:
		case http.ErrAbortHandler:
			d = feed.Decision{Undecided: "the kube-apiserver's answer was cut off or is too long"}
		default:
			panic(ended)
		}
	}()
	body, err := json.Marshal(authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: q.Verb, Group: q.Group, Version: "*", Resource: q.Resource.Resource, Namespace: q.Namespace,
		}},
	})
	if err != nil {
		return feed.Decision{Undecided: err.Error()}
	}
	question := r.Clone(r.Context())
	question.URL.Path, question.URL.RawPath, question.URL.RawQuery = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", ""
	question.Body, question.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	question.Header.Set("Content-Type", "application/json")
	question.Header.Set("Accept", "application/json")
	question.Header.Del("Accept-Encoding")
	question.Header.Del("Content-Length")
	answer := &answerRecorder{header: http.Header{}, code: http.StatusOK}
	asUser.ServeHTTP(answer, question)
	var reviewed authorizationv1.SelfSubjectAccessReview
	if answer.code != http.StatusCreated {
		return feed.Decision{Undecided: fmt.Sprintf("%d: %s", answer.code, messageOf(answer.body.Bytes())),
			Refused: answer.code == http.StatusForbidden || answer.code == http.StatusUnauthorized}
	}
	if err := json.NewDecoder(bytes.NewReader(answer.body.Bytes())).Decode(&reviewed); err != nil {
		return feed.Decision{Undecided: "parsing the decision: " + err.Error()}
	}
	return feed.Decision{Allowed: reviewed.Status.Allowed && !reviewed.Status.Denied}
}

// messageOf returns the message of a Status.
func messageOf(body []byte) string {
	var s metav1.Status
	_ = json.NewDecoder(bytes.NewReader(body)).Decode(&s) // one without a message says nothing
	return feed.CutText(s.Message)
}

// answerRecorder keeps an answer of at most maxDecision.
type answerRecorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answerRecorder) Header() http.Header { return a.header }

// WriteHeader keeps the last code, which is not that of an informational response.
func (a *answerRecorder) WriteHeader(code int) { a.code = code }

func (a *answerRecorder) Write(b []byte) (int, error) {
	if a.body.Len()+len(b) > maxDecision {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxDecision)
	}
	return a.body.Write(b)
}
