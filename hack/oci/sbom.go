package oci

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// SBOM lists what a Go binary was built from, as SPDX 2.3 in JSON. It is read
// from the binary itself, so it cannot differ from what is in it.
func SBOM(name string, info *buildinfo.BuildInfo, binary []byte, created time.Time) ([]byte, error) {
	type object = map[string]any
	packages := []object{{
		"SPDXID": "SPDXRef-binary", "name": name, "versionInfo": info.Main.Version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
		"checksums": []object{{"algorithm": "SHA256", "checksumValue": strings.TrimPrefix(digestOf(binary), "sha256:")}},
	}, {
		"SPDXID": "SPDXRef-go", "name": "go", "versionInfo": info.GoVersion, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
	}}
	relations := []object{
		{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-binary"},
		{"spdxElementId": "SPDXRef-binary", "relationshipType": "CONTAINS", "relatedSpdxElement": "SPDXRef-go"},
	}
	for i, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		id := fmt.Sprintf("SPDXRef-module-%d", i)
		packages = append(packages, moduleOf(id, module))
		relations = append(relations, object{"spdxElementId": "SPDXRef-binary", "relationshipType": "CONTAINS", "relatedSpdxElement": id})
	}
	return json.MarshalIndent(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
		"documentNamespace": "https://open-cluster-management.io/spdx/" + name + "/" + strings.TrimPrefix(digestOf(binary), "sha256:"),
		"creationInfo":      object{"created": created.UTC().Format(time.RFC3339), "creators": []string{"Tool: cluster-proxy/hack/image"}},
		"packages":          packages, "relationships": relations,
	}, "", " ")
}

func moduleOf(id string, module *debug.Module) map[string]any {
	return map[string]any{
		"SPDXID": id, "name": module.Path, "versionInfo": module.Version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
		"externalRefs": []map[string]string{{
			"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/" + module.Path + "@" + module.Version,
		}},
	}
}
