package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
)

const (
	// SessionsPath is where peers ask for sessions, and end them.
	SessionsPath = "/sessions"
	// maxToldSessions is how many sessions a peer is told of: they are less than a message.
	maxToldSessions = 2000
)

// SessionName is what a name of a session looks like.
var SessionName = regexp.MustCompile(`^[0-9a-f]{32}$`)

// toldSessions is the answer to a peer that asks for sessions, or ends one.
type toldSessions struct {
	Sessions []v1alpha1.Session `json:"sessions"`
	// More is how many there are besides.
	More int `json:"more,omitempty"`
}

// sessionRoutes add the paths for sessions to the port for peers.
func (p *Peers) sessionRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+SessionsPath, p.forThis(func(w http.ResponseWriter, _ *http.Request) {
		all := p.Sessions.List()
		told := toldSessions{Sessions: all[max(0, len(all)-maxToldSessions):]}
		told.More = len(all) - len(told.Sessions)
		answerSessions(w, told)
	}))
	mux.HandleFunc("DELETE "+SessionsPath+"/{name}", p.forThis(func(w http.ResponseWriter, r *http.Request) {
		told := toldSessions{Sessions: []v1alpha1.Session{}}
		if one := p.Sessions.Finish(r.PathValue("name")); one != nil {
			told.Sessions = append(told.Sessions, one.Object())
			klog.FromContext(r.Context()).Info("A session was ended at another replica", "session", one.Name, "user", one.Status.User, "kind", one.Status.Kind, "cluster", one.Status.Cluster, "target", one.Status.Target)
		}
		answerSessions(w, told)
	}))
}

func answerSessions(w http.ResponseWriter, told toldSessions) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(told) // the peer may be gone
}

// AskSessions asks all peers for the sessions that they have, and says which of them has which.
// missing says what the answer may lack, for people.
func (p *Peers) AskSessions(ctx context.Context) (items []v1alpha1.Session, at map[string]PeerAddress, missing []string) {
	at = map[string]PeerAddress{}
	lost, err := p.askAll(ctx, http.MethodGet, SessionsPath, func(from PeerAddress, answer []byte, err error) (enough bool) {
		var told toldSessions
		if err == nil {
			told, err = from.read(answer)
		}
		for _, one := range told.Sessions {
			if _, known := at[one.Name]; !known {
				at[one.Name] = from
				items = append(items, one)
			}
		}
		switch {
		case err != nil:
			missing = append(missing, session.Shown(err.Error()))
		case told.More > 0:
			missing = append(missing, fmt.Sprintf("a replica has %d sessions more", told.More))
		}
		return false
	})
	if err != nil {
		return nil, nil, []string{err.Error()}
	}
	if lost {
		missing = append(missing, "a replica of the proxy API that was there a moment ago does not answer any more")
	}
	slices.Sort(missing)
	return items, at, missing
}

// EndSession has a peer end a session. It reports whether there was one.
func (p *Peers) EndSession(ctx context.Context, at PeerAddress, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := p.send(ctx, http.MethodDelete, at.address, at.id, SessionsPath+"/"+name, nil)
	if err != nil {
		return false, err
	}
	told, err := at.read(answer)
	return slices.ContainsFunc(told.Sessions, func(one v1alpha1.Session) bool { return one.Name == name }), err
}

// read reads what the replica answers about sessions.
func (p PeerAddress) read(answer []byte) (toldSessions, error) {
	if answer == nil {
		return toldSessions{}, fmt.Errorf("the replica at %s is of a version without sessions", p.address)
	}
	told, err := readSessions(answer)
	if err != nil {
		return toldSessions{}, fmt.Errorf("the replica at %s answered what is no list of sessions: %w", p.address, err)
	}
	return told, nil
}

// readSessions reads what a peer says. Its texts are made as safe to print as this
// replica's own.
func readSessions(raw []byte) (told toldSessions, err error) {
	var each struct {
		Sessions []json.RawMessage `json:"sessions"`
		More     int               `json:"more"`
	}
	if err := json.Unmarshal(raw, &each); err != nil {
		return toldSessions{}, err
	}
	if len(each.Sessions) > maxToldSessions {
		return toldSessions{}, fmt.Errorf("%d sessions are more than %d", len(each.Sessions), maxToldSessions)
	}
	told.More = each.More
	for _, one := range each.Sessions {
		var from, s v1alpha1.Session
		if err := json.Unmarshal(one, &from); err != nil {
			return toldSessions{}, err
		}
		if !SessionName.MatchString(from.Name) {
			return toldSessions{}, fmt.Errorf("the name %q is not one of a session", session.Shown(from.Name))
		}
		s.Name, s.UID, s.CreationTimestamp = from.Name, session.UIDOf(from.Name), from.CreationTimestamp
		s.Status = v1alpha1.SessionStatus{User: reshown(from.Status.User), Kind: reshown(from.Status.Kind), Cluster: reshown(from.Status.Cluster), View: reshown(from.Status.View),
			Target: reshown(from.Status.Target), BytesIn: from.Status.BytesIn, BytesOut: from.Status.BytesOut, Replica: reshown(from.Status.Replica)}
		told.Sessions = append(told.Sessions, s)
	}
	return told, nil
}

// maxReshownText is the longest that shown returns: each byte in four, and quotes.
const maxReshownText = 4*(session.MaxShownText+3) + 2

// reshown is what a peer has already made safe to print, if it has.
func reshown(text string) string {
	if len(text) <= maxReshownText && session.Printable(text) {
		return text
	}
	return session.Shown(text)
}
