//go:build !linux

package lab

import (
	"context"
	"errors"
	"net"
	"strconv"

	"open-cluster-management.io/cluster-proxy/test/lab/certs"
)

var errNoNodes = errors.New("a lab with nodes needs Linux")

type forwards struct{}

// Missing says in one line what this machine lacks for a lab with nodes.
func Missing() string { return errNoNodes.Error() }

func startNodes(context.Context, Options, release) (*Lab, error)   { return nil, errNoNodes }
func (l *Lab) openNodes() error                                    { return nil }
func (l *Lab) link(string, bool) error                             { return errNoNodes }
func (l *Lab) forward(string, string, string, int) (string, error) { return "", errNoNodes }

// Routes is for labs with nodes.
func (l *Lab) Routes(context.Context, string, string) (bool, error) { return false, errNoNodes }

func (l *Lab) dialHub(ctx context.Context, port int) error {
	return dialHere(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
func stopNodes(string) error                                     { return nil }
func (c *Cluster) prepareNode(*certs.Authority) error            { return errNoNodes }
func (c *Cluster) keep(program) error                            { return errNoNodes }
func (c *Cluster) stopProgram(context.Context, string) error     { return errNoNodes }
func (s Specs) Images(context.Context, string) ([]string, error) { return nil, errNoNodes }
func (s UpstreamSuite) Images(*Lab, string) ([]string, error)    { return nil, errNoNodes }
