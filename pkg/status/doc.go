// Package status has the one way from an HTTP status code to a metav1.Status, for the proxy
// API, its views and agents alike. Clients branch on the Reason
// (apierrors.IsMethodNotSupported and its like), so a code has the same Reason wherever an
// answer comes from. Reasons are those of apierrors' constructors; of 5xx codes that have
// none, such as 502 and 508, it is InternalError, as in apierrors.NewGenericServerResponse.
//
// # Files
//
//	status.go  makes and writes a Status
package status
