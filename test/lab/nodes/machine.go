//go:build linux

package nodes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

const (
	network = "10.77.0."
	// Domain is that of the machines' names: hub.lab, cluster1.lab.
	Domain = "lab"
	// maxMachines is how many address pools the lab's network has.
	maxMachines = 4
)

// Machine is the machine of one cluster.
type Machine struct {
	Name string
	// Address is that on the lab's network.
	Address string
	// Pool are the addresses for Services of type LoadBalancer: Pool[0] to
	// Pool[1] in the last number.
	Pool [2]int
	// Dir holds the machine's files. Inside and outside it has the same path.
	Dir string
	// LogDir holds the log of every program as NAME-PROGRAM.log.
	LogDir string
	// Cgroup is the machine's control group in every hierarchy.
	Cgroup string
	// Hosts are the names that every machine knows.
	Hosts map[string]string
	// Hub says who may be dialed from behind the fence; nil on the hub.
	Hub *Machine `json:",omitempty"`
	// APIPort is the local port that leads to the machine's port 6443.
	APIPort int
}

// HostName is that of the machine, and of the cluster's node.
func (m *Machine) HostName() string { return m.Name + "-node" }

// LoadBalancerAddresses are those of the pool.
func (m *Machine) LoadBalancerAddresses() (out []string) {
	for i := m.Pool[0] + 1; i < m.Pool[1]; i++ {
		out = append(out, fmt.Sprint(network, i))
	}
	return out
}

func (m *Machine) poolCIDR() string { return fmt.Sprint(network, m.Pool[0], "/27") }

func (m *Machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.Dir}, parts...)...)
}

func (m *Machine) processFile() string { return m.path("machine.pid") }

// layOut gives machines their addresses; the first is the hub's.
func layOut(dir, logDir string, names []string) ([]*Machine, error) {
	if len(names) > maxMachines {
		return nil, fmt.Errorf("a lab of %d clusters with nodes: there are addresses for %d", len(names), maxMachines)
	}
	sum := sha256.Sum256([]byte(dir))
	hosts := map[string]string{}
	var machines []*Machine
	for i, name := range names {
		m := &Machine{
			Name: name, Address: fmt.Sprint(network, 10+i), Pool: [2]int{128 + 32*i, 128 + 32*i + 31}, Hosts: hosts,
			Dir: filepath.Join(dir, name), LogDir: logDir, Cgroup: filepath.Join(cgroupParent, hex.EncodeToString(sum[:4]), fmt.Sprint(i)),
		}
		hosts[name+"."+Domain] = m.Address
		if i > 0 {
			m.Hub = &Machine{Name: names[0], Address: machines[0].Address, Pool: machines[0].Pool}
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// writeSpec leaves a machine's description for its first process.
func (m *Machine) writeSpec() error {
	raw, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(m.path("machine.json"), raw, 0o600)
}

func readSpec(dir string) (*Machine, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "machine.json"))
	if err != nil {
		return nil, err
	}
	m := &Machine{}
	return m, json.Unmarshal(raw, m)
}
