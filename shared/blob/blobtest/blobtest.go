// Package blobtest gives a test its storage: the S3 server that all tests share, or a
// private one that it may stop, kill and freeze. No program uses it.
package blobtest

import (
	"os"
	"testing"

	"email-gateway/shared/servertest"
)

// Shared returns the storage URL of the S3 server that all tests use: a test keeps to
// keys of its own. It needs S3_URL; without it the test fails.
func Shared(tb testing.TB) string {
	tb.Helper()
	url := os.Getenv("S3_URL")
	if url == "" {
		tb.Fatal("S3_URL is not set: run the tests through ./scripts/test.sh")
	}
	return url
}

// Start starts an S3 server of the test's own. Its credentials are those of the shared
// one, which are in the environment; its URL is a storage URL.
func Start(tb testing.TB) *servertest.Server {
	tb.Helper()
	Shared(tb)
	return servertest.Start(tb, "s3")
}
