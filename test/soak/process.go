package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
)

// sampleEvery is how often processes are looked at.
const sampleEvery = 3 * time.Second

// sampler collects samples of all processes of the addon.
type sampler struct {
	s     *suite.Suite
	kinds []kindOf

	samples []sample
}

type kindOf struct {
	suite.Kind
	cluster string
}

// run samples until ctx is done. A process that is frozen, starts or ends has no sample.
func (p *sampler) run(ctx context.Context) {
	for pause(ctx, sampleEvery) {
		for _, k := range p.kinds {
			p.samples = append(p.samples, p.of(ctx, k)...)
		}
	}
}

func (p *sampler) of(ctx context.Context, k kindOf) (samples []sample) {
	names, err := k.Pods(ctx)
	if err != nil {
		return nil // its kube-apiserver is restarted
	}
	at := time.Now()
	for _, name := range names {
		pod, err := k.Client.CoreV1().Pods(k.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			continue
		}
		pids := pidsOf(func(process string) bool {
			folder, _ := os.Readlink(filepath.Join(process, "cwd")) // it may end meanwhile
			return strings.HasSuffix(folder, "/pods/"+string(pod.UID))
		}, "cluster-proxy")
		if len(pids) != 1 {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, sampleEvery)
		address, err := p.metricsAddress(limited, k.cluster, pod)
		if err == nil {
			var took usage
			if took, err = usageOf(limited, pids[0], address); err == nil {
				samples = append(samples, sample{at: at, kind: k.Name, process: fmt.Sprintf("%s/%d", name, pids[0]), took: took})
			}
		}
		cancel()
	}
	return samples
}

// metricsAddress is where a pod serves its metrics.
func (p *sampler) metricsAddress(ctx context.Context, cluster string, pod *corev1.Pod) (string, error) {
	for _, wanted := range []string{"metrics", "admin", "health"} {
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				if port.Name != wanted {
					continue
				}
				address, err := p.s.Lab.PodAddress(cluster, pod.UID, port.ContainerPort)
				if err != nil {
					return "", err
				}
				if _, err := metricsOf(ctx, address); err == nil {
					return address, nil
				}
			}
		}
	}
	return "", fmt.Errorf("pod %s shows no metrics", pod.Name)
}

func metricsOf(ctx context.Context, address string) (string, error) {
	text, err := plainhttp.Get(ctx, "http://"+address+"/metrics")
	if err == nil && !strings.Contains(text, "go_goroutines") {
		err = fmt.Errorf("%s shows no metrics of Go", address)
	}
	return text, err
}

// usageOf is what a process takes, by the kernel and by itself.
func usageOf(ctx context.Context, pid int, address string) (u usage, err error) {
	text, err := metricsOf(ctx, address)
	if err != nil {
		return u, err
	}
	for i, name := range map[int]string{heap: "go_memstats_heap_inuse_bytes", goroutines: "go_goroutines"} {
		if u[i], err = scrape.Sum(strings.NewReader(text), name); err != nil || u[i] == 0 {
			return u, errors.Join(err, fmt.Errorf("%s shows no %s", address, name))
		}
	}
	process := fmt.Sprint("/proc/", pid)
	statm, err := os.ReadFile(process + "/statm")
	if err != nil {
		return u, err
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(statm))[1], 64)
	if err != nil {
		return u, err
	}
	u[resident] = pages * float64(os.Getpagesize())
	open, err := os.ReadDir(process + "/fd")
	if err != nil {
		return u, err
	}
	u[files] = float64(len(open))
	for _, file := range open {
		if to, _ := os.Readlink(process + "/fd/" + file.Name()); strings.HasPrefix(to, "socket:") {
			u[sockets]++
		}
	}
	return u, nil
}

// pidsOf are the processes of a program that is wanted, by their folders in /proc.
func pidsOf(wanted func(process string) bool, program string) (pids []int) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		comm, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != program || !wanted(process) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
