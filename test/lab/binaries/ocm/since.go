//go:build !ocm016

package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"open-cluster-management.io/ocm/pkg/addon/webhook/v1alpha1"
	"open-cluster-management.io/ocm/pkg/addon/webhook/v1beta1"
	"open-cluster-management.io/ocm/pkg/cmd/hub"
	"sigs.k8s.io/controller-runtime/pkg/webhook/conversion"
)

// since returns a program that OCM 0.16.0 did not have, nil if there is none of
// that name.
func since(name string) *cobra.Command {
	switch name {
	case "grpc-server":
		return hub.NewGRPCServerCommand()
	case "addon-webhook":
		return newAddonWebhook()
	}
	return nil
}

// newAddonWebhook serves OCM's conversions between versions v1alpha1 and v1beta1 of
// the addon API. OCM's own command listens on ports that cannot be chosen, of
// which a machine with two labs has too few.
func newAddonWebhook() *cobra.Command {
	var address, cert, key string
	c := &cobra.Command{Use: "webhook", RunE: func(*cobra.Command, []string) error {
		scheme := runtime.NewScheme()
		for _, install := range []func(*runtime.Scheme) error{v1alpha1.Install, v1beta1.Install} {
			if err := install(scheme); err != nil {
				return err
			}
		}
		server := &http.Server{Addr: address, Handler: conversion.NewWebhookHandler(scheme), ReadHeaderTimeout: 10 * time.Second}
		return server.ListenAndServeTLS(cert, key)
	}}
	c.Flags().StringVar(&address, "listen", "", "where to listen, host:port")
	c.Flags().StringVar(&cert, "cert", "", "file of the serving certificate")
	c.Flags().StringVar(&key, "key", "", "file of its key")
	return c
}
