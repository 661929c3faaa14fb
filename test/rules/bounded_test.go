package rules

// Bounds of much of what is decoded.
const (
	ofObject  = "it is a part of an object of the hub, of which etcd takes no more than 1.5 MiB"
	ofBody    = "the request's body is bounded by maxBody"
	ofMember  = "an item or event of a member has 16 MiB at most, and what it is decoded to has no lists of its own"
	ofCounted = "the elements of the array are counted before, by Elements"
	ofHeader  = "it is a part of the request's header, which net/http bounds"
	ofFile    = "the file is the administrator's or the owner's own"
	passedOn  = "the bytes are passed on, and none are kept"
)

// bounded says what bounds the input of decoders where that is not seen in the function, by
// file and function.
var bounded = map[string]string{
	"pkg/kubectlplugin/diagnose/archive.go read":            "fetch bounds it, and the process is the user's own",
	"pkg/kubectlplugin/cli/hub.go Answer":                   "it is the answer of the hub that the user trusts, in the user's own process",
	"pkg/kubectlplugin/cli/print.go Print":                  "it is what the process itself has just encoded",
	"pkg/addonmanager/agentaddon/oidc.go setRequiredClaims": ofObject,
	"pkg/addonmanager/agentaddon/values.go overrideImage":   ofObject,
	"pkg/addonmanager/agentaddon/values.go placeOnHub":      ofObject,
	"pkg/agentapi/exposed.go ParseExposedServices":          ofObject,
	"pkg/agentclient/errors.go refusedByAgent":              "package connect reads no more than maxRefusal of a refusal",
	"pkg/carrier/copy.go Relay":                             passedOn,
	"pkg/fleetview/fleet/ask.go ReadInto":                   "an Allowance bounds it",
	"pkg/fleetview/fleet/memory.go Read":                    "an Allowance bounds it",
	"pkg/fleetview/discovery/fetch.go parseVersion":         "the answer has no more than maxVersion",
	"pkg/fleetview/discovery/fetch.go unzip":                "what is unzipped is read through an allowance, or by package fault",
	"pkg/fleetview/review.go chooseByReview":                "review reads no more than maxReview",
	"pkg/fleetview/review.go readReviews":                   "the function refuses what has more than maxReviewed",
	"pkg/fleetview/merge/jsonpatch.go AppendJSONPatch":      ofCounted,
	"pkg/fleetview/merge/jsonpatch.go restoreValue":         ofBody,
	"pkg/fleetview/merge/jsonpatch.go testOurs":             ofBody,
	"pkg/fleetview/merge/jsonpatch.go text":                 ofBody,
	"pkg/fleetview/merge/key.go readMetadata":               ofMember,
	"pkg/fleetview/merge/object.go Unquote":                 "a string is no larger than its JSON",
	"pkg/fleetview/merge/key.go ReadStatus":                 "the function refuses what has more than MaxStatus",
	"pkg/fleetview/merge/restore.go fromYAML":               "the function counts lines and marks before",
	"pkg/fleetview/merge/table.go Add":                      ofCounted,
	"pkg/fleetview/discovery/swagger.go encoded":            "the function refuses what has more than maxEncoded values",
	"pkg/fleetview/watch/encoding/events.go jsonEvent":      ofMember,
	"pkg/fleetview/watch/encoding/table.go readTable":       ofMember,
	"pkg/fleetview/watch/encoding/table.go withoutObject":   ofMember,
	"pkg/hubaccess/outage/outage.go expiryOf":               ofHeader,
	"pkg/hubaccess/authn/ratelimit.go decodePart":           ofHeader,
	"pkg/pki/request.go otherNames":                         ofObject,
	"pkg/proxyagent/ownerpolicy/policy.go Parse":            ofFile,
	"pkg/proxyapi/replica/peers.go say":                     "send bounds it by position.MaxMessage",
	"pkg/proxyapi/apigroup/registries.go served":            ofObject,
	"pkg/proxyapi/replica/sessions.go readSessions":         "peers.send bounds it by position.MaxMessage, 4 MiB, and peers are replicas",
	"pkg/proxyapi/apigroup/whoami.go parseReview":           "its caller reads no more than maxAnswer",
	"pkg/proxyserver/peers.go hear":                         "a newsReader ends after maxNews of each message",
	"pkg/proxyserver/konnectivity/packets.go Unmarshal":     "gRPC bounds a message",
	"pkg/recording/reader.go NewReader":                     "a line has no more than maxLine",
	"pkg/recording/reader.go event":                         "a line has no more than maxLine",
	"pkg/recording/recording.go AddSize":                    "a message of a terminal's size is a frame, which package frames bounds",
	"pkg/tunnel/carriers.go ReadFrom":                       passedOn,
}
