package lab

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// rewriting is what the arguments of a container must be told, because it runs
// as a process beside all others and not in a pod of its own.
type rewriting struct {
	mounts  map[string]string // mount path to folder
	ports   map[int32]int     // container port to local port
	service func(name, namespace string, port int) (addresses []string, err error)
}

var serviceAddress = regexp.MustCompile(`\b([a-z0-9-]+)\.([a-z0-9-]+)\.svc(?:\.cluster\.local)?:([0-9]+)\b`)

// rewriteArgs rewrites the values of --flag=value arguments: files below a mount
// path, addresses of Services, and the container's own ports. A number alone is a
// port only where the flag's name says so.
func rewriteArgs(args []string, r rewriting) ([]string, error) {
	out := make([]string, len(args))
	for i, arg := range args {
		flag, value, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(flag, "--") {
			out[i] = arg
			continue
		}
		isPort := flag == "--port" || strings.HasSuffix(flag, "-port")
		if _, err := strconv.Atoi(value); err == nil && !isPort {
			out[i] = arg
			continue
		}
		value, err := r.value(value)
		if err != nil {
			return nil, fmt.Errorf("argument %q: %w", arg, err)
		}
		out[i] = flag + "=" + value
	}
	return out, nil
}

func (r rewriting) value(value string) (string, error) {
	in := "" // the longest mount path that holds the value
	for mount := range r.mounts {
		if len(mount) > len(in) && (value == mount || strings.HasPrefix(value, mount+"/")) {
			in = mount
		}
	}
	if in != "" {
		return r.mounts[in] + strings.TrimPrefix(value, in), nil
	}
	if match := serviceAddress.FindStringSubmatch(value); match != nil {
		port, err := strconv.Atoi(match[3])
		if err != nil {
			return "", err
		}
		addresses, err := r.service(match[1], match[2], port)
		if err != nil {
			return "", err
		}
		return strings.Replace(value, match[0], strings.Join(addresses, ","), 1), nil
	}
	before, last := "", value
	if colon := strings.LastIndexByte(value, ':'); colon >= 0 {
		before, last = value[:colon+1], value[colon+1:]
	}
	if port, err := strconv.ParseInt(last, 10, 32); err == nil {
		if local, ok := r.ports[int32(port)]; ok {
			return before + strconv.Itoa(local), nil
		}
	}
	return value, nil
}

// mountDirs are the folders behind a container's mount paths.
func mountDirs(running *runningPod, container corev1.Container) map[string]string {
	dirs := map[string]string{}
	for _, mount := range container.VolumeMounts {
		dirs[strings.TrimSuffix(mount.MountPath, "/")] = filepath.Join(running.dir, "volumes", mount.Name, mount.SubPath)
	}
	return dirs
}

// inMounts rewrites the parameters of a URL that name files below a mount path, as in
// sslrootcert=/store/ca.crt.
func inMounts(text string, mounts map[string]string) string {
	for mount, dir := range mounts {
		text = strings.ReplaceAll(text, "="+mount+"/", "="+dir+"/")
	}
	return text
}
