package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
)

// crowd are agents in one process, so that what a process costs by itself is
// not counted for each of them.
type crowd struct {
	ctx   context.Context
	certs certFiles
	to    string // the proxy server's agent port
	stock bool   // konnectivity's agents
	n     int
}

// single is how many proxy servers an agent looks for.
type single struct{}

func (single) Count() int { return 1 }

// add starts one more agent, which runs until the process ends.
func (c *crowd) add() error {
	c.n++
	id := fmt.Sprint("agent-", c.n)
	if c.stock {
		_, clientTLS, err := c.certs.configs()
		if err != nil {
			return err
		}
		set := (&agent.ClientSetConfig{
			Address: c.to, AgentID: id, SyncInterval: time.Second, SyncIntervalCap: 10 * time.Second, ProbeInterval: time.Second, XfrChannelSize: 150,
			DialOptions: []grpc.DialOption{
				grpc.WithTransportCredentials(credentials.NewTLS(clientTLS)),
				grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, PermitWithoutStream: true}),
			},
		}).NewAgentClientSet(nil, c.ctx.Done())
		set.SetServerCounter(single{})
		set.Serve()
		return nil
	}
	host, port, err := net.SplitHostPort(c.to)
	if err != nil {
		return err
	}
	certificate, err := c.certs.agent(id) // a cluster may have 64 agents at most
	if err != nil {
		return err
	}
	o := proxyagent.NewOptions()
	o.AgentID, o.ProxyServerHost = id, host
	if o.ProxyServerPort, err = strconv.Atoi(port); err != nil {
		return err
	}
	o.AgentCert, o.AgentKey, o.CACert, o.AgentIdentifiers = certificate.Cert, certificate.Key, certificate.CA, "host="+id
	o.HealthServerHost, o.HealthServerPort, o.AdminBindAddress, o.AdminServerPort = "127.0.0.1", 0, "127.0.0.1", 0
	made, err := proxyagent.New(o)
	if err != nil {
		return err
	}
	go func() { _ = made.Run(c.ctx) }()
	return nil
}

// idleAgents is the memory that an agent which does nothing costs at both ends
// together, with those of all carriers that it keeps ready.
func idleAgents(ctx context.Context, p *path) (sample, error) {
	role := "agents"
	if p.server.stock {
		role = "konnectivity-agents"
	}
	child, err := p.server.startAgents(role)
	if err != nil {
		return nil, err
	}
	defer child.stop()
	both := []*process{p.relays[0], child}
	const few, many = 50, 250
	var memory [2]int64
	for i, n := range []int{few, many - few} {
		if err := child.command(fmt.Sprint("add ", n)); err != nil {
			return nil, err
		}
		want := float64(1 + few + i*(many-few)) // with the system's own
		if err := until(sampleLimit, func() error {
			got, err := scrape.Metric(ctx, p.server.healthAddress, "konnectivity_network_proxy_server_ready_backend_connections")
			if err == nil && got < want {
				err = fmt.Errorf("%.0f of %.0f agents are connected", got, want)
			}
			return err
		}); err != nil {
			return nil, err
		}
		if memory[i], err = settled(ctx, both); err != nil {
			return nil, err
		}
	}
	return sample{"KiB each": float64(memory[1]-memory[0]) / 1024 / (many - few)}, nil
}
