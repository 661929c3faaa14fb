// Package fairqueue bounds how many questions the hub is asked at a time, and has those who
// ask take turns.
//
// # Files
//
//	fairqueue.go  Queue
package fairqueue
