package blob_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/shared/blob"
	"email-gateway/shared/blob/blobtest"
)

// The parameter profile takes precedence over AWS_ACCESS_KEY_ID, which is for SES where the S3 server is not of AWS.
func TestProfile(t *testing.T) { //nolint:paralleltest // it sets the environment
	url := blobtest.Shared(t)
	file := filepath.Join(t.TempDir(), "credentials")
	text := fmt.Sprintf("[storage]\naws_access_key_id = %s\naws_secret_access_key = %s\n", os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAOFSES")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of SES")
	for url, want := range map[string]error{url: blob.ErrUnavailable, url + "&profile=storage": nil} {
		b, err := blob.Open(t.Context(), url, blob.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Ping(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", url, err, want)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for text, want := range map[string]string{ // "" is valid
		"file:///var/lib/email-gateway":        "",
		"file:///var/lib/caixa%20postal/":      "",
		"s3://email-gateway":                   "",
		"s3://email-gateway/?region=sa-east-1": "",
		"s3://b-1.x?endpoint=http://127.0.0.1:7070&region=us-east-1&s3ForcePathStyle=true": "",
		"s3://bucket?endpoint=https://minio.example/s3&use_path_style=1&ssetype=aws:kms":   "",
		"":         "must begin with",
		"/var/lib": "must begin with", "gs://bucket": "must begin with", "mem://": "must begin with",
		"file://var/lib": "three slashes", "file:var/lib": "three slashes", "file:///": "root", "file:///x/..": "root",
		"file:///var/lib?create_dir=1": "no parameters",
		"s3://":                        "must name a bucket", "s3:///bucket": "must name a bucket", "s3://Bucket": "must name a bucket", "s3://b:80": "must name a bucket",
		"s3://bucket/folder": "no path", "s3://bucket#x": "#fragment",
		"s3://bucket?endpoint=localhost:7070": "endpoint", "s3://bucket?endpoint=http://a:" + secret + "@host": "endpoint",
		"s3://bucket?s3ForcePathStyle=yes": "true or false", "s3://bucket?region=": "empty", "s3://bucket?region=a&region=b": "twice",
		"s3://bucket?secret=" + secret: "unknown parameter", "s3://key:" + secret + "@bucket": "credentials",
		"s3://bucket?a=%zz" + secret: "cannot be read", "s3://%zz" + secret: "not a URL",
	} {
		err := blob.CheckURL(text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		case err != nil && strings.Contains(err.Error(), secret):
			t.Errorf("%s: the error quotes the secret: %v", text, err)
		}
		_, openErr := blob.Open(t.Context(), text, blob.Options{})
		if err != nil && (openErr == nil || !strings.Contains(openErr.Error(), err.Error())) {
			t.Errorf("%s: opened with %v, checked with %v", text, openErr, err)
		}
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"file:///var/lib/caixa%20postal/":                                     "file:///var/lib/caixa%20postal/mailings/1.csv",
		"s3://email-gateway/?endpoint=http://127.0.0.1:7070&region=us-east-1": "s3://email-gateway/mailings/1.csv",
	} {
		if got := open(t, text).URL("mailings/1.csv"); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Not parallel: it changes the environment.
func TestOpen_WithoutRegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	if _, err := blob.Open(t.Context(), "s3://bucket", blob.Options{}); err == nil || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("opened: %v", err)
	}
	t.Setenv("AWS_REGION", "sa-east-1")
	open(t, "s3://bucket")
}
