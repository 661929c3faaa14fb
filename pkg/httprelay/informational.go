package httprelay

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
)

// maxInformational is how many informational answers (1xx) may come before the one
// to a request.
const maxInformational = 5

// NoInformational returns a transport for a ReverseProxy that keeps informational
// answers (1xx) to itself, and fails requests to which more than five come.
//
// A proxy should pass them on (RFC 9110, section 15.2), and ReverseProxy does. But
// an HTTP/2 server may still encode one while ReverseProxy writes the next into the
// same map, if the client has reset the stream meanwhile, and a map that is read
// and written at a time ends the whole process. Nothing in Kubernetes sends any but
// 100 (Continue), which servers send by themselves.
func NoInformational(next http.RoundTripper) http.RoundTripper { return noInformational{next} }

type noInformational struct{ next http.RoundTripper }

func (t noInformational) RoundTrip(r *http.Request) (*http.Response, error) {
	// ReverseProxy makes a trace for each request. One that is added here would
	// call it as well.
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil {
		var n atomic.Int32
		trace.Got1xxResponse = func(int, textproto.MIMEHeader) error {
			if n.Add(1) > maxInformational {
				return errTooManyInformational
			}
			return nil
		}
	}
	return t.next.RoundTrip(r)
}

var errTooManyInformational = fmt.Errorf("more than %d informational answers came in the place of one", maxInformational)
