package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

const podPortsFile = "ports.json"

// writePorts tells those who did not start the lab where a pod listens.
func (p *runningPod) writePorts() error {
	raw, err := json.Marshal(p.ports)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(p.dir, podPortsFile), raw)
}

// PodAddress is where a port of one of the addon's pods is reached on this
// machine. It is an error while the pod does not run.
func (l *Lab) PodAddress(cluster string, pod types.UID, port int32) (string, error) {
	raw, err := os.ReadFile(l.cluster(cluster).file(filepath.Join("pods", string(pod), podPortsFile)))
	if err != nil {
		return "", fmt.Errorf("finding the ports of pod %s on %s: %w", pod, cluster, err)
	}
	ports := map[int32]int{}
	if err := json.Unmarshal(raw, &ports); err != nil {
		return "", fmt.Errorf("reading the ports of pod %s on %s: %w", pod, cluster, err)
	}
	local, ok := ports[port]
	if !ok {
		return "", fmt.Errorf("pod %s on %s has no port %d", pod, cluster, port)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(local)), nil
}

// PodVolume is the folder of a volume of one of the addon's pods, in a lab without nodes.
func (l *Lab) PodVolume(cluster string, pod types.UID, volume string) string {
	return l.cluster(cluster).file(filepath.Join("pods", string(pod), "volumes", volume))
}
