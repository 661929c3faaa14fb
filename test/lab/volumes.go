package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// refresh brings a running pod's files up to date, as a kubelet does.
func (r *podRunner) refresh(ctx context.Context, running *runningPod) error {
	if err := r.writeKubeconfig(ctx, running); err != nil {
		return err
	}
	return r.writeVolumes(running)
}

// writeVolumes brings each volume up to date by itself: one that cannot be read
// keeps no other from it.
func (r *podRunner) writeVolumes(running *runningPod) error {
	var errs []error
	for _, volume := range running.pod.Spec.Volumes {
		if err := r.writeVolume(running, volume); err != nil {
			errs = append(errs, fmt.Errorf("volume %q: %w", volume.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *podRunner) writeVolume(running *runningPod, volume corev1.Volume) error {
	dir := filepath.Join(running.dir, "volumes", volume.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if volume.EmptyDir != nil {
		return makeSubPaths(running.pod.Spec.Containers, volume.Name, dir) // what is in there is the container's
	}
	files, err := r.volumeFiles(running, volume)
	if err != nil {
		return err
	}
	return syncFiles(dir, files)
}

// makeSubPaths makes the folders within a volume that containers mount.
func makeSubPaths(containers []corev1.Container, volume, dir string) error {
	for _, container := range containers {
		for _, mount := range container.VolumeMounts {
			if mount.Name != volume || mount.SubPath == "" {
				continue
			}
			if err := os.MkdirAll(filepath.Join(dir, mount.SubPath), 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *podRunner) volumeFiles(running *runningPod, volume corev1.Volume) (map[string][]byte, error) {
	namespace := running.pod.Namespace
	switch {
	case volume.Projected != nil:
		return r.projectedFiles(running, volume.Projected.Sources)
	case volume.Secret != nil:
		files, err := r.cache.volumeSecret(namespace, volume.Secret.SecretName, volume.Secret.Optional)
		return chosen(files, volume.Secret.Items), err
	case volume.ConfigMap != nil:
		files, err := r.cache.volumeConfigMap(namespace, volume.ConfigMap.Name, volume.ConfigMap.Optional)
		return chosen(files, volume.ConfigMap.Items), err
	}
	return nil, fmt.Errorf("the lab knows volumes of kind secret, configMap, projected and emptyDir only")
}

// projectedFiles are those of the volume by which every pod gets its service
// account; the lab knows no other use of it.
func (r *podRunner) projectedFiles(running *runningPod, sources []corev1.VolumeProjection) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, source := range sources {
		switch {
		case source.ServiceAccountToken != nil:
			token, err := os.ReadFile(filepath.Join(running.dir, "token"))
			if err != nil {
				return nil, err
			}
			files[source.ServiceAccountToken.Path] = token
		case source.ConfigMap != nil:
			data, err := r.cache.volumeConfigMap(running.pod.Namespace, source.ConfigMap.Name, nil)
			if err != nil {
				return nil, err
			}
			for _, item := range source.ConfigMap.Items {
				files[item.Path] = data[item.Key]
			}
		case source.DownwardAPI != nil:
			for _, item := range source.DownwardAPI.Items {
				files[item.Path] = []byte(running.pod.Namespace)
			}
		}
	}
	return files, nil
}

func chosen(files map[string][]byte, items []corev1.KeyToPath) map[string][]byte {
	if len(items) == 0 {
		return files
	}
	out := map[string][]byte{}
	for _, item := range items {
		if content, ok := files[item.Key]; ok {
			out[item.Path] = content
		}
	}
	return out
}

// syncFiles makes a folder hold these files and no others.
func syncFiles(dir string, files map[string][]byte) error {
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
		if err := writeIfChanged(file, content); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if _, ok := files[name]; ok {
			return nil
		}
		return os.Remove(path)
	})
}

func writeIfChanged(file string, content []byte) error {
	if before, err := os.ReadFile(file); err == nil && bytes.Equal(before, content) {
		return nil
	}
	return replaceFile(file, content)
}

// writeKubeconfig lends the pod its own service account, so that it may do what
// its RBAC allows and nothing else. The token is renewed long before it ends.
func (r *podRunner) writeKubeconfig(ctx context.Context, running *runningPod) error {
	tokenFile := filepath.Join(running.dir, "token")
	if info, err := os.Stat(tokenFile); err == nil && time.Since(info.ModTime()) < 20*time.Minute {
		return nil
	}
	account := running.pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	seconds := int64(3600)
	token, err := r.client.CoreV1().ServiceAccounts(running.pod.Namespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("getting a token for service account %q: %w", account, err)
	}
	if err := os.MkdirAll(running.dir, 0o700); err != nil {
		return err
	}
	if err := replaceFile(tokenFile, []byte(token.Status.Token)); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: r.cluster.url(), CertificateAuthority: r.cluster.file("ca.crt")}
	config.AuthInfos["lab"] = &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "lab", Namespace: running.pod.Namespace}
	config.CurrentContext = "lab"
	return clientcmd.WriteToFile(*config, filepath.Join(running.dir, "kubeconfig"))
}
