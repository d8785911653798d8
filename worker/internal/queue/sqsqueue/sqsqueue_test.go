package sqsqueue

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Calls go to the host of the queue's URL, signed for the region that the host names.
func TestNew_Region(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://sqs.sa-east-1.amazonaws.com/123456789012/ses-events":               "sa-east-1",
		"https://sqs-fips.us-west-2.amazonaws.com/123456789012/a":                   "us-west-2",
		"https://sqs.cn-north-1.amazonaws.com.cn/123456789012/a":                    "cn-north-1",
		"https://vpce-1-a.sqs.sa-east-1.vpce.amazonaws.com/123456789012/ses-events": "eu-central-1",
		"http://127.0.0.1:4566/000000000000/a":                                      "eu-central-1",
	} {
		q, err := New(t.Context(), url, "eu-central-1")
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		o := q.client.Options()
		if o.Region != want || o.BaseEndpoint == nil || !strings.HasPrefix(url, *o.BaseEndpoint+"/") {
			t.Errorf("%s: region %s, endpoint %v", url, o.Region, o.BaseEndpoint)
		}
	}
	if _, err := New(t.Context(), "ftp:secret", "eu-central-1"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a URL without a host: %v", err)
	}
}

// The queue's host is used also where the environment asks for the endpoints of FIPS and dual stack, for SES.
func TestNew_EndpointVariants(t *testing.T) { // not parallel: it sets the environment
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, `{"Messages":[{"MessageId":"a"}]}`)
	}))
	t.Cleanup(server.Close)
	for _, name := range []string{"AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "true")
			q, err := New(t.Context(), server.URL+"/123456789012/a", "us-east-1")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := q.Receive(t.Context(), 0); err != nil || len(got) != 1 {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
