// Command release writes, publishes and mirrors a release of the addon:
//
//	release build     writes a folder: the image as an OCI layout, the chart with the image's
//	                  digest as an OCI layout and an archive, the kubectl plugin with krew's
//	                  manifest, SBOMs, SLSA provenance, checksums, and signatures of all of it
//	release publish   pushes that folder to a registry
//	release mirror    makes it one file for a site without the internet, which is a program:
//	                  started with a registry there, it pushes what it contains
//	release image     packs the image alone, as an archive that container engines load
//
// The same commit, version, registry, key and release of Go give the same bytes, in any
// folder and on any day. Files:
//
//	main.go        commands and flags
//	build.go       the folder dist/, file by file
//	program.go     a program for a platform, and the list of what is in it (SPDX)
//	chart.go       the chart with registry, version and digest
//	plugin.go      archives of the plugin, and krew's manifest
//	provenance.go  SLSA provenance as an in-toto statement
//	sign.go        signatures, in the formats of cosign
//	publish.go     checking and pushing
//	mirror.go      the file for a site without the internet
//	image.go       the image, and the archive for container engines
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if content, err := appended(); err == nil {
		defer content.Close()
		if len(args) != 1 || strings.HasPrefix(args[0], "-") {
			return errors.New("name the registry to push to, such as registry.example.com/ocm")
		}
		return pushContent(ctx, &content.Reader, args[0], out)
	}
	if len(args) == 0 {
		return errors.New("name what to do: build, publish, mirror or image")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dist := flags.String("dist", "dist", "folder of the release")
	registry := flags.String("registry", "", "registry and path, such as ghcr.io/example/ocm: the image is <registry>/cluster-proxy, the chart <registry>/charts/cluster-proxy")
	checkout := flags.String("source", ".", "checkout of which the release is made")
	key := flags.String("key", "", "file with the ECDSA key (P-256, PEM) that signs; without it nothing is signed")
	switch args[0] {
	case "build":
		b := builder{out: out}
		flags.StringVar(&b.version, "version", "", "version, such as 1.0.0-alpha.1")
		flags.StringVar(&b.url, "url", "https://github.com/open-cluster-management-io/cluster-proxy/releases/download", "where the plugin's archives are published: at URL/vVERSION/ARCHIVE")
		archs := flags.String("arch", strings.Join(architectures, ","), "architectures of the image")
		plugins := flags.String("platforms", strings.Join(platforms, ","), "platforms of the plugin, OS/ARCHITECTURE")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		b.checkout, b.dist, b.registry, b.key, b.archs, b.platforms = *checkout, *dist, *registry, *key, split(*archs), split(*plugins)
		return b.build()
	case "publish":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return publish(ctx, *dist, *registry, out)
	case "mirror":
		platform := flags.String("platform", "linux/amd64", "OS/ARCHITECTURE of the machine on which the mirror is started")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return mirror(*checkout, *dist, *platform, *key, out)
	case "image":
		name := flags.String("name", "localhost/cluster-proxy:dev", "reference of the image")
		file := flags.String("out", "bin/cluster-proxy.tar", "archive to write")
		archs := flags.String("arch", strings.Join(architectures, ","), "architectures")
		start := flags.Bool("start", false, "start the program of each architecture too, those of others than this machine's by qemu-user-static")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return packImage(*name, *file, split(*archs), *start, out)
	}
	return fmt.Errorf("%q is none of build, publish, mirror and image", args[0])
}

// split returns the items of a list, of which there may be none.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
