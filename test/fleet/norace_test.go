//go:build !race

package fleet

const scale = 1
