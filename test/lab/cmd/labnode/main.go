//go:build linux

// Command labnode is what a lab with nodes runs inside: the first process of
// every machine and of the network between them, the sandbox of every pod, the
// workload "web", and a stand-in for the program openssl. It is static, so that it
// runs in empty images.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"open-cluster-management.io/cluster-proxy/test/lab/nodes"
)

func main() {
	var err error
	switch {
	case filepath.Base(os.Args[0]) == "openssl":
		err = openssl(os.Args[1:])
	case len(os.Args) == 2 && os.Args[1] == "network":
		err = nodes.RunNetwork()
	case len(os.Args) == 3 && os.Args[1] == "machine":
		err = nodes.RunMachine(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == "pause":
		pause()
	case len(os.Args) == 2 && os.Args[1] == "web":
		err = web()
	default:
		err = fmt.Errorf("usage: labnode network | machine DIR | pause | web; the lab runs it, people do not")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "labnode:", err)
		os.Exit(1)
	}
}

// pause holds a pod's namespaces and reaps what its containers leave.
func pause() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			var status syscall.WaitStatus
			if pid, _ := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); pid <= 0 {
				break
			}
		}
	}
}

// web answers on port 8080 and writes a line each second.
func web() error {
	cluster, began := os.Getenv("CLUSTER"), time.Now()
	go func() {
		for range time.Tick(time.Second) {
			fmt.Printf("%s has been up for %d s\n", cluster, int(time.Since(began).Seconds()))
		}
	}()
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello from %s\n", cluster)
	})}
	return server.ListenAndServe()
}
