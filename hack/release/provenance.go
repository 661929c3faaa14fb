package main

import (
	"encoding/json"
	"runtime"
)

const (
	repository    = "https://github.com/open-cluster-management-io/cluster-proxy"
	predicateType = "https://slsa.dev/provenance/v1"
)

// subject is what a statement is about.
type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// provenance says how the subjects were made, as https://slsa.dev/spec/v1.0/provenance and in-toto have it. It has neither
// times nor names of machines: another build of the commit has the same.
func (b *builder) provenance(subjects []subject) ([]byte, error) {
	type object = map[string]any
	return json.Marshal(object{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": predicateType,
		"predicate": object{
			"buildDefinition": object{
				"buildType":          repository + "/hack/release@v1",
				"externalParameters": object{"version": b.version, "registry": b.registry, "filesURL": b.url, "architectures": b.archs, "platforms": b.platforms},
				"internalParameters": object{"go": runtime.Version(), "sourceDateEpoch": b.source.created.Unix()},
				"resolvedDependencies": []object{{
					"uri": "git+" + repository + "@" + b.source.commit, "digest": object{"gitCommit": b.source.commit},
				}},
			},
			"runDetails": object{"builder": object{"id": repository + "/hack/release"}},
		},
	})
}
