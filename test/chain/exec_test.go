package chain

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// execServer serves exec over SPDY of a command that says one line and goes on.
func execServer(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/exec") {
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
			t.Error(err)
			return
		}
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
			if stream.Headers().Get("streamType") == "stdout" {
				go func() { _, _ = io.WriteString(stream, "1\n") }()
			}
			return nil
		})
		if conn != nil {
			<-conn.CloseChan()
			conn.Close()
		}
	})
}

// TestExecBySPDYEnds has an exec over SPDY, as kubectl has one where WebSockets are
// turned off, and kills what carries it. The client must be told. It takes that
// for the end of the command, as it does without anything in between: SPDY's
// streams have no other end. So the error is looked at by TestUpgradeIsCutOff.
func TestExecBySPDYEnds(t *testing.T) {
	for _, victim := range []string{"agent", "proxy server", "proxy API"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			w := start(t, execServer(t), options{})
			r := w.request(http.MethodPost, "/api/v1/namespaces/a/pods/b/exec?command=x&stdout=true", nil)
			executor, err := remotecommand.NewSPDYExecutor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: w.dir + "/serving-ca.crt"}}, r.Method, r.URL)
			if err != nil {
				t.Fatal(err)
			}
			reader, writer := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: writer})
				writer.CloseWithError(io.ErrClosedPipe)
				ended <- err
			}()
			if line, err := bufio.NewReader(reader).ReadString('\n'); line != "1\n" {
				t.Fatalf("the command says %q, %v; the exec ended with %v", line, err, <-ended)
			}
			map[string]*process{"agent": w.agent, "proxy server": w.server, "proxy API": w.api}[victim].kill()
			select {
			case err := <-ended:
				t.Logf("the exec ended with %v", err)
			case <-time.After(testTimeout):
				t.Error("the exec goes on")
			}
		})
	}
}
