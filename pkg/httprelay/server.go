package httprelay

import (
	"net/http"

	"golang.org/x/net/http2"
)

// Window is how much of a body one HTTP/2 stream holds unread, in each direction.
// A single stream moves a window in a round trip: 20 MB/s at 50 ms.
const Window = 1 << 20

// ConfigureServer makes s serve up to streams requests at a time on one HTTP/2
// connection, none of which takes another's share of what may be unread: the
// connection's window is as large as all of theirs. With net/http's defaults one
// body that is not read stops all others on its connection. net/http's own
// configuration promises windows below 4 MiB only, which is why the server is that
// of x/net, as in k8s.io/apiserver.
func ConfigureServer(s *http.Server, streams uint32) error {
	//lint:ignore SA1019 http.HTTP2Config promises no window of a connection from 4 MiB on.
	return http2.ConfigureServer(s, &http2.Server{MaxConcurrentStreams: streams, MaxUploadBufferPerStream: Window, MaxUploadBufferPerConnection: Window * int32(streams)})
}
