// Command database listens on a local port and connects each client, by CONNECT through the
// proxy API, to a TCP Service of a managed cluster.
package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// connectTimeout bounds how long a connection takes until bytes can flow.
const connectTimeout = 30 * time.Second

func main() {
	var f forwarder
	flag.StringVar(&f.proxy, "proxy", "cluster-proxy-addon-user.open-cluster-management-addon.svc:9092", "host:port of the proxy API")
	flag.StringVar(&f.ca, "ca", "ca.crt", "CA of the proxy API: ca.crt of Secret proxy-server-ca")
	flag.StringVar(&f.tokenFile, "token-file", "token", "file with a token of the hub, read anew for each connection")
	flag.StringVar(&f.target, "target", "", "<service>.<namespace>.svc.<cluster>:<port>")
	listen := flag.String("listen", "", "where to listen; without it 127.0.0.1 and the target's port")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := f.run(ctx, *listen); err != nil {
		log.Fatal(err)
	}
}

// forwarder connects clients to a target.
type forwarder struct {
	proxy, ca, tokenFile, target string
}

// run listens until ctx is done.
func (f forwarder) run(ctx context.Context, listen string) error {
	_, port, err := net.SplitHostPort(f.target)
	if err != nil {
		return fmt.Errorf("parsing --target: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cmp.Or(listen, net.JoinHostPort("127.0.0.1", port)))
	if err != nil {
		return err
	}
	log.Printf("%s is at %s", f.target, listener.Addr())
	return f.serve(ctx, listener)
}

func (f forwarder) serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		client, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		clients.Go(func() {
			if err := f.forward(ctx, client.(*net.TCPConn)); err != nil {
				log.Printf("connecting to %s: %v", f.target, err)
			}
		})
	}
}

// forward ends when both sides have ended.
func (f forwarder) forward(ctx context.Context, client *net.TCPConn) error {
	defer client.Close()
	service, received, err := f.connect(ctx)
	if err != nil {
		return err
	}
	defer service.Close()
	stop := context.AfterFunc(ctx, func() { client.Close(); service.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := io.Copy(service, client); err != nil {
			service.NetConn().Close() // no end that looks like a complete one
			return
		}
		_ = service.CloseWrite()
	})
	both.Go(func() {
		if _, err := io.Copy(client, received); err != nil {
			_ = client.SetLinger(0) // the client is told that something is missing
			client.Close()
			return
		}
		_ = client.CloseWrite()
	})
	both.Wait()
	return nil
}

// connect asks the proxy API for a connection to the target, of which received is what comes.
func (f forwarder) connect(ctx context.Context) (conn *tls.Conn, received io.Reader, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	token, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return nil, nil, err
	}
	host, _, err := net.SplitHostPort(f.proxy)
	if err != nil {
		return nil, nil, fmt.Errorf("parsing --proxy: %w", err)
	}
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{ServerName: host, CAFile: f.ca}})
	if err != nil {
		return nil, nil, fmt.Errorf("loading the CA of the proxy API: %w", err)
	}
	dialed, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", f.proxy)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { dialed.Close() })
	received, err = ask(dialed, f.target, strings.TrimSpace(string(token)))
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		dialed.Close()
		return nil, nil, err
	}
	return dialed.(*tls.Conn), received, nil
}

// ask sends a CONNECT request. The user's name of the proxy's credential means nothing.
func ask(conn net.Conn, target, token string) (received io.Reader, err error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: target}, Host: target, Header: http.Header{
		"Proxy-Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("token:"+token))},
	}}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		return nil, fmt.Errorf("the proxy API answers %s: %s", response.Status, why)
	}
	return reader, nil
}
