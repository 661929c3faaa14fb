package lab

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// podSelector finds the addon's own pods.
const podSelector = "open-cluster-management.io/addon=cluster-proxy"

// podRunner runs the addon's pods of one cluster as processes.
type podRunner struct {
	cluster  *Cluster
	binary   string
	services *serviceTable
	client   *kubernetes.Clientset
	cache    *podCache
	log      program // for notes only

	mu     sync.Mutex
	paused bool
	alive  map[types.UID]string // pods with processes, those that are ending included

	pods   map[types.UID]*runningPod
	noted  map[string]bool
	ending sync.WaitGroup
}

// runningPod is a pod whose containers run as processes.
type runningPod struct {
	pod    *corev1.Pod
	dir    string
	ports  map[int32]int // container port to local port
	names  map[string]int32
	cancel context.CancelFunc
	ready  atomic.Bool // its readiness probes have succeeded
}

func newPodRunner(c *Cluster, binary string, services *serviceTable) (*podRunner, error) {
	config := c.RESTConfig()
	watching, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second // one answer that does not come delays all pods of the cluster
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &podRunner{
		cluster: c, binary: binary, services: services, client: client, cache: newPodCache(watching),
		log:   program{name: "pods", log: filepath.Join(c.logs, c.Name+"-pods.log")},
		alive: map[types.UID]string{}, pods: map[types.UID]*runningPod{}, noted: map[string]bool{},
	}, nil
}

func (r *podRunner) setPaused(paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = paused
}

// leftOver names a pod that is deleted and has a process all the same.
func (r *podRunner) leftOver(ctx context.Context) (string, error) {
	list, err := r.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: podSelector})
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	over := maps.Clone(r.alive)
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			delete(over, pod.UID)
		}
	}
	for _, name := range over {
		return name, nil
	}
	return "", nil
}

// noteOnce keeps a reason that lasts from filling the log.
func (r *podRunner) noteOnce(text string) {
	if !r.noted[text] {
		r.noted[text] = true
		r.log.note(text)
	}
}

// run looks at the cache twice a second until ctx is done, and then stops all
// pods.
func (r *podRunner) run(ctx context.Context) {
	r.ending.Go(func() { r.cache.run(ctx) })
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := r.sync(ctx); err != nil && ctx.Err() == nil {
			r.noteOnce(err.Error())
		}
		select {
		case <-ctx.Done():
			r.ending.Wait()
			return
		case <-tick.C:
		}
	}
}

func (r *podRunner) sync(ctx context.Context) error {
	if !r.cache.filled() {
		return nil // as long as the API server does not answer
	}
	r.mu.Lock()
	paused := r.paused
	r.mu.Unlock()
	wanted := map[types.UID]bool{}
	for _, pod := range listed[*corev1.Pod](r.cache.pods) {
		if paused || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		wanted[pod.UID] = true
		if r.pods[pod.UID] == nil {
			if r.runs(pod.UID) || !r.exists(ctx, pod) {
				continue // it was paused and has not ended yet, or is deleted
			}
			if err := r.start(ctx, pod); err != nil {
				r.noteOnce(fmt.Sprintf("pod %s/%s cannot run yet: %v", pod.Namespace, pod.Name, err))
				continue
			}
		}
		if err := r.refresh(ctx, r.pods[pod.UID]); err != nil {
			r.noteOnce(fmt.Sprintf("pod %s/%s: %v", pod.Namespace, pod.Name, err))
		}
	}
	for uid, pod := range r.pods {
		if !wanted[uid] {
			r.log.note(fmt.Sprintf("stopping pod %s/%s", pod.pod.Namespace, pod.pod.Name))
			pod.cancel()
			delete(r.pods, uid)
		}
	}
	return r.syncServices(ctx)
}

// start prepares a pod's volumes and starts its containers. A volume that is
// not there yet is an error, and the pod is tried again.
func (r *podRunner) start(ctx context.Context, pod *corev1.Pod) error {
	running := &runningPod{pod: pod, dir: r.cluster.file(filepath.Join("pods", string(pod.UID))), ports: map[int32]int{}, names: map[string]int32{}}
	if err := r.refresh(ctx, running); err != nil {
		return err
	}
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			local, err := ports.Next()
			if err != nil {
				return err
			}
			running.ports[port.ContainerPort] = local
			running.names[port.Name] = port.ContainerPort
		}
	}
	if err := running.writePorts(); err != nil {
		return err
	}
	var programs []program
	for _, container := range pod.Spec.Containers {
		p, err := r.programFor(ctx, running, container)
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	podCtx, cancel := context.WithCancel(ctx)
	running.cancel = cancel
	r.mu.Lock()
	r.alive[pod.UID] = pod.Namespace + "/" + pod.Name
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range programs {
		r.log.note(fmt.Sprintf("running pod %s/%s: %s %q", pod.Namespace, pod.Name, filepath.Base(p.path), p.args))
		wg.Go(func() {
			(&supervised{program: p, wanted: func(ctx context.Context) bool { return r.exists(ctx, pod) }}).keepRunning(podCtx)
		})
	}
	r.ending.Go(func() {
		wg.Wait()
		_ = os.RemoveAll(running.dir)
		r.mu.Lock()
		delete(r.alive, pod.UID)
		r.mu.Unlock()
	})
	r.pods[pod.UID] = running
	r.ending.Go(func() { running.probe(podCtx) })
	return nil
}

// runs reports whether a process of a pod has not ended yet.
func (r *podRunner) runs(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, alive := r.alive[uid]
	return alive
}

// exists reports whether a pod is not known to be deleted. Its process may have been killed with
// it, and must not come back until the runner hears of that.
func (r *podRunner) exists(ctx context.Context, pod *corev1.Pod) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	now, err := r.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	return now.UID == pod.UID && now.DeletionTimestamp == nil
}

// containerPort is the number of a port that may be called by its name; 0 is none.
func (p *runningPod) containerPort(port intstr.IntOrString) int32 {
	if port.StrVal != "" {
		return p.names[port.StrVal]
	}
	return port.IntVal
}

// probe asks a pod that begins whether it is ready, until it is. Deployments do not wait for it:
// for them a pod is ready as soon as kwok says that it runs.
func (p *runningPod) probe(ctx context.Context) {
	for _, container := range p.pod.Spec.Containers {
		if container.ReadinessProbe == nil || container.ReadinessProbe.HTTPGet == nil {
			continue
		}
		get := container.ReadinessProbe.HTTPGet
		url := fmt.Sprintf("http://127.0.0.1:%d%s", p.ports[p.containerPort(get.Port)], get.Path)
		if err := poll(ctx, func(ctx context.Context) error { return getOK(ctx, http.DefaultClient, url) }); err != nil {
			return
		}
	}
	p.ready.Store(true)
}

func (r *podRunner) programFor(ctx context.Context, running *runningPod, container corev1.Container) (program, error) {
	pod := running.pod
	mounts := mountDirs(running, container)
	args, err := rewriteArgs(container.Args, rewriting{
		mounts: mounts,
		ports:  running.ports,
		service: func(name, namespace string, port int) ([]string, error) {
			if r.headless(namespace, name) {
				return r.services.addresses(ctx, r.cluster.Name, namespace, name, port)
			}
			address, err := r.services.address(ctx, r.cluster.Name, namespace, name, port)
			return []string{address}, err
		},
	})
	if err != nil {
		return program{}, fmt.Errorf("container %q: %w", container.Name, err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + running.dir, "KUBECONFIG=" + filepath.Join(running.dir, "kubeconfig")}
	for _, variable := range container.Env {
		value, err := r.envValue(pod, &container, variable)
		if err != nil {
			return program{}, fmt.Errorf("container %q: %w", container.Name, err)
		}
		env = append(env, variable.Name+"="+inMounts(value, mounts))
	}
	// Long enough for the proxy API to drain and to hand over what the other replicas need.
	timeout := 20 * time.Second
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		timeout = min(timeout, time.Duration(*pod.Spec.TerminationGracePeriodSeconds)*time.Second)
	}
	return program{
		name: pod.Name + "/" + container.Name, path: r.binary, args: args, env: env, dir: running.dir, stopTimeout: timeout,
		log: filepath.Join(r.cluster.logs, fmt.Sprintf("%s_%s_%s_%s.log", r.cluster.Name, pod.Namespace, pod.Name, container.Name)),
	}, nil
}

// headless reports whether a Service's name leads to its pods, and not to an address of its own.
func (r *podRunner) headless(namespace, name string) bool {
	return slices.ContainsFunc(listed[*corev1.Service](r.cache.services), func(svc *corev1.Service) bool {
		return svc.Namespace == namespace && svc.Name == name && svc.Spec.ClusterIP == corev1.ClusterIPNone
	})
}

func (r *podRunner) envValue(pod *corev1.Pod, container *corev1.Container, variable corev1.EnvVar) (string, error) {
	if variable.ValueFrom == nil {
		return variable.Value, nil
	}
	if key := variable.ValueFrom.SecretKeyRef; key != nil {
		data, err := r.cache.volumeSecret(pod.Namespace, key.Name, nil)
		if _, ok := data[key.Key]; err == nil && !ok {
			err = fmt.Errorf("secret %s/%s has no key %q", pod.Namespace, key.Name, key.Key)
		}
		return string(data[key.Key]), err
	}
	if resource := variable.ValueFrom.ResourceFieldRef; resource != nil {
		if limit, ok := container.Resources.Limits[corev1.ResourceMemory]; ok && resource.Resource == "limits.memory" {
			return strconv.FormatInt(limit.Value(), 10), nil
		}
		return "", fmt.Errorf("variable %s: the lab knows the memory limit of a container that has one, not %q", variable.Name, resource.Resource)
	}
	if field := variable.ValueFrom.FieldRef; field != nil {
		switch field.FieldPath {
		case "metadata.namespace":
			return pod.Namespace, nil
		case "metadata.name":
			return pod.Name, nil
		case "metadata.uid":
			return string(pod.UID), nil
		case "spec.nodeName":
			return pod.Spec.NodeName, nil
		case "spec.serviceAccountName":
			return pod.Spec.ServiceAccountName, nil
		case "status.podIP":
			return "127.0.0.1", nil
		}
		return "", fmt.Errorf("variable %s: field %q is not one that the lab knows", variable.Name, field.FieldPath)
	}
	return "", fmt.Errorf("variable %s: the lab knows values, secretKeyRef, fieldRef and resourceFieldRef only", variable.Name)
}

// syncServices points every Service of the addon's pods to their processes: to those that are
// ready, if any is.
func (r *podRunner) syncServices(ctx context.Context) error {
	for _, svc := range listed[*corev1.Service](r.cache.services) {
		if len(svc.Spec.Selector) == 0 {
			continue
		}
		selector := labels.SelectorFromSet(svc.Spec.Selector)
		for _, port := range svc.Spec.Ports {
			var backends, starting []string
			for _, pod := range r.pods {
				if pod.pod.Namespace != svc.Namespace || !selector.Matches(labels.Set(pod.pod.Labels)) {
					continue
				}
				target := port.TargetPort
				if target == (intstr.IntOrString{}) {
					target.IntVal = port.Port
				}
				local, ok := pod.ports[pod.containerPort(target)]
				switch address := fmt.Sprintf("127.0.0.1:%d", local); {
				case !ok:
				case pod.ready.Load() || svc.Spec.PublishNotReadyAddresses:
					backends = append(backends, address)
				default:
					starting = append(starting, address)
				}
			}
			if len(backends) == 0 {
				backends = starting
			}
			_, known := readServiceTable(filepath.Dir(r.cluster.logs))[serviceKey(r.cluster.Name, svc.Namespace, svc.Name, int(port.Port))]
			if len(backends) == 0 && !known {
				continue
			}
			if err := r.services.setBackends(ctx, r.cluster.Name, svc.Namespace, svc.Name, int(port.Port), backends); err != nil {
				return err
			}
			if svc.Spec.ClusterIP == corev1.ClusterIPNone {
				if err := r.services.setEndpoints(ctx, r.cluster.Name, svc.Namespace, svc.Name, int(port.Port), backends); err != nil {
					return err
				}
			}
			if err := r.services.listenOn(ctx, r.cluster.Name, svc.Namespace, svc.Name, svc.Spec.ClusterIP, int(port.Port)); err != nil {
				r.noteOnce(err.Error())
			}
		}
	}
	return nil
}
