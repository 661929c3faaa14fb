// Package route translates between the request targets that the proxy API
// serves and what they mean: /<cluster>/<any Kubernetes path>?<query>, and
// /@<view>/<any Kubernetes path>?<query> for a fleet view ("@" is in no cluster's name,
// and may be written %40).
//
// It works on the target as it stood on the request line. Nothing is decoded,
// cleaned or re-encoded on the way: what follows the cluster reaches the
// kube-apiserver byte for byte, because an encoded slash in an object name and
// a query with slashes in it mean something there.
//
// Two kinds of input are refused. A first segment that cannot be the name of a
// cluster or a view is not found: nothing of that name can exist. A path that two parsers
// could read in two ways (dot segments, plain or encoded; bytes that no URL may
// hold; broken escapes) is a bad request: who passes it on cannot know what it
// authorizes.
package route
