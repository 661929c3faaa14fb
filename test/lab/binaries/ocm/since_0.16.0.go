//go:build ocm016

package main

import "github.com/spf13/cobra"

func since(string) *cobra.Command { return nil }
