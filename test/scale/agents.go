package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc/grpclog"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
)

// serveAgents runs agents, and the kube-apiserver of their clusters.
func serveAgents(ctx context.Context, spec childSpec) (func(request) (report, error), error) {
	// A thousand processes' logs in one are of no use.
	klog.SetLogger(logr.Discard())
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	addresses, err := parseAddresses(spec.Addresses)
	if err != nil {
		return nil, err
	}
	net.DefaultResolver = resolver(addresses)
	managed, err := serveManaged(ctx)
	if err != nil {
		return nil, err
	}
	return func(r request) (report, error) {
		for _, agent := range r.Start {
			if err := runAgent(ctx, agent, managed); err != nil {
				return report{}, fmt.Errorf("agent of %s: %w", agent.Cluster, err)
			}
		}
		return report{Leased: managed.takeLeased()}, nil
	}, nil
}

// runAgent starts an agent with the arguments that the addon manager has rendered for it. Its
// ports are any, since all agents share one machine.
func runAgent(ctx context.Context, spec agentSpec, managed *managedAPI) error {
	kubeconfig := filepath.Join(spec.Dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*managed.kubeconfig(spec.Cluster), kubeconfig); err != nil {
		return err
	}
	o := proxyagent.NewOptions()
	flags := pflag.NewFlagSet("proxy-agent", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(spec.Args); err != nil {
		return err
	}
	o.AgentID, o.Kubeconfig = spec.Cluster+"-agent", kubeconfig
	o.HealthServerHost, o.HealthServerPort = "127.0.0.1", 0
	o.AdminBindAddress, o.AdminServerPort = "127.0.0.1", 0
	o.HandlerBindAddress, o.HandlerPort = "127.0.0.1", 0
	agent, err := proxyagent.New(o)
	if err != nil {
		return err
	}
	go func() {
		if err := agent.Run(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "the agent of %s has ended: %v\n", spec.Cluster, err)
		}
	}()
	return nil
}

// kubeconfig is an agent's: the token says which cluster is asked.
func (m *managedAPI) kubeconfig(cluster string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: "https://" + m.address, CertificateAuthorityData: m.ca}
	config.AuthInfos[cluster] = &clientcmdapi.AuthInfo{Token: cluster}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	config.CurrentContext = cluster
	return config
}

func parseAddresses(texts []string) (parsed [][4]byte, err error) {
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, address.As4())
	}
	return parsed, nil
}

// resolver finds every name at one of the addresses, any of them.
func resolver(addresses [][4]byte) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for answerQuery(server, addresses) == nil {
			}
		}()
		return client, nil
	}}
}

// answerQuery answers one question of DNS, as over TCP.
func answerQuery(conn net.Conn, addresses [][4]byte) error {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	raw := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, raw); err != nil {
		return err
	}
	var query dnsmessage.Message
	if err := query.Unpack(raw); err != nil {
		return err
	}
	answer := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true}, Questions: query.Questions}
	if question := query.Questions[0]; question.Type == dnsmessage.TypeA {
		answer.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class},
			Body:   &dnsmessage.AResource{A: addresses[rand.IntN(len(addresses))]},
		}}
	}
	packed, err := answer.Pack()
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...))
	return err
}
