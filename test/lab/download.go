package lab

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// DownloadVariable names the environment variable with the folder of a mirror, a URL, from which
// DownloadControlPlane gets archives in place of GitHub. "off" turns downloads off.
const DownloadVariable = "LAB_DOWNLOAD"

// envtestVersion is envtest's latest release of the lab's minor release of Kubernetes.
const envtestVersion = "v1.37.0"

// envtestSums are the SHA-512 sums of envtest's archives, by platform. They are those of
// envtest-releases.yaml in sigs.k8s.io/controller-tools v0.23.0, which Go's checksum database vouches for.
var envtestSums = map[string]string{
	"darwin/amd64": "19a2a5376a8aa57a7b25ec5198834db29bf2ba0d6ff572d7f45ba683b13fb14c3ebec8069e92db66c39f1c7a9cff1bc2be879e2aacdc9fa8b8a7e861959bdf7b",
	"darwin/arm64": "fb38cfacdd71b5e97a4d4cceac861af5f55069cf783f0e49cf181bfc32eb3e557c2091a534dc5d38f1b92c5ba142bc1979f215a5385b3630ea6a661be6fa161b",
	"linux/amd64":  "1d1c453633b72c161a5d5a886cde7ac850be1a2ac796a9e1d4ffacacc64868295bdd2d57aa66cd0c158f5ce510f5dfe3fbc61ac21bd3dcfb875bd70658aa663a",
	"linux/arm64":  "ae6a670502988200b0131c943758cfd3d3a58cf4e6247ef7f0e6a6467f1cd9a333c802e86101f0446b1b92a0e327387224e1e44fe1a4693da0929c6e529cfe9a",
}

// The bounds of a download: its size, unpacked too, and its time.
const (
	maxArchive      = 1 << 30
	downloadTimeout = 5 * time.Minute
	answerTimeout   = 10 * time.Second // until there is a connection, and until an answer begins
)

// DownloadControlPlane gets envtest's etcd, kube-apiserver and kubectl if they would have to be
// built, and sets EnvtestVariable to the folder that has them, in the user's cache. On a machine
// without internet it gives up within seconds and says so on out. Tests build what they run: envtest's
// patch release is another one than theirs.
func DownloadControlPlane(ctx context.Context, out io.Writer) error {
	plan, err := Plan(ctx, "")
	if err != nil || plan.First == 0 || os.Getenv(DownloadVariable) == "off" {
		return err
	}
	folder, err := downloadEnvtest(ctx, out)
	if err != nil {
		fmt.Fprintf(out, "lab: %v; building from source\n", err)
		return ctx.Err()
	}
	return os.Setenv(EnvtestVariable, folder)
}

// downloadEnvtest returns the folder with envtest's programs.
func downloadEnvtest(ctx context.Context, out io.Writer) (folder string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	base := os.Getenv(DownloadVariable)
	if base == "" {
		base = "https://github.com/kubernetes-sigs/controller-tools/releases/download/envtest-" + envtestVersion
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	sum, ok := envtestSums[platform]
	if !ok {
		return "", fmt.Errorf("envtest has no programs for %s", platform)
	}
	name := fmt.Sprintf("envtest-%s-%s-%s", envtestVersion, runtime.GOOS, runtime.GOARCH)
	return download(ctx, base+"/"+name+".tar.gz", sum, filepath.Join(cache, "cluster-proxy-lab", name), out)
}

// download unpacks the programs of controlPlane from the archive at url into folder, all or none.
func download(ctx context.Context, url, sum, folder string, out io.Writer) (string, error) {
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	fmt.Fprintf(out, "lab: downloading %s\n", url)
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(filepath.Dir(folder), "download-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	archive, programs := filepath.Join(partial, "archive"), filepath.Join(partial, "programs")
	if err := fetch(ctx, url, sum, archive); err != nil {
		return "", fmt.Errorf("downloading %s: %w", url, err)
	}
	if err := unpack(archive, programs, controlPlane.links); err != nil {
		return "", fmt.Errorf("unpacking %s: %w", url, err)
	}
	if err := os.Rename(programs, folder); err != nil && !errors.Is(err, fs.ErrExist) { // another process was quicker
		return "", err
	}
	return folder, nil
}

// fetch writes what url has to a new file, and fails unless it has that sum.
func fetch(ctx context.Context, url, sum, name string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext, transport.ResponseHeaderTimeout = (&net.Dialer{Timeout: answerTimeout}).DialContext, answerTimeout
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha512.New()
	if _, err := io.Copy(io.MultiWriter(file, hash), io.LimitReader(response.Body, maxArchive)); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("its SHA-512 sum is %s, want %s", got, sum)
	}
	return nil
}

// unpack writes the files of these names, which may be in any folder of the archive, to dir,
// which it makes.
func unpack(archive, dir string, names []string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	missing := slices.Clone(names)
	for content := tar.NewReader(io.LimitReader(unzipped, maxArchive)); len(missing) > 0; {
		header, err := content.Next()
		if err == io.EOF {
			return fmt.Errorf("it has no %s", missing[0])
		}
		if err != nil {
			return err
		}
		at := slices.Index(missing, path.Base(header.Name))
		if at < 0 || header.Typeflag != tar.TypeReg {
			continue
		}
		program, err := os.OpenFile(filepath.Join(dir, missing[at]), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
		if err != nil {
			return err
		}
		if _, err := io.Copy(program, content); err != nil {
			return errors.Join(err, program.Close())
		}
		if err := program.Close(); err != nil {
			return err
		}
		missing = slices.Delete(missing, at, at+1)
	}
	return nil
}
