// Package docs makes the pages of docs/reference that follow from the code: the chart's values, the
// CustomResourceDefinitions, the plugin's commands, the flags of the processes, the alerts, the dashboards, and what
// users are answered if the way to a cluster fails.
//
// TestReference holds each page to its source; hack/update-texts.sh writes what is behind the mark of a
// page, and leaves the text before it. The rules for documents that are written by hand are in test/rules.
package docs
