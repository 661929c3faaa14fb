// Package plugins stands for the file of Prometheus' package plugins that has the
// SDKs of clouds, which take minutes to build. The rest finds targets in files.
package plugins
