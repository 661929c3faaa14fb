//go:build !race

package agents

const scale = 1
