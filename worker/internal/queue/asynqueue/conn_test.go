package asynqueue_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"email-gateway/worker/internal/queue/asynqueue"
)

func TestParseURL_OneServer(t *testing.T) {
	t.Parallel()
	client := open[*redis.Client](t, "rediss://ana:s3cret@cache.example:6380/3?pool_size=7")
	o := client.Options()
	got := []any{o.Addr, o.Username, o.Password, o.DB, o.PoolSize, o.TLSConfig.ServerName, o.ContextTimeoutEnabled}
	want := []any{"cache.example:6380", "ana", "s3cret", 3, 7, "cache.example", true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseURL_Cluster(t *testing.T) {
	t.Parallel()
	client := open[*redis.ClusterClient](t, "rediss-cluster://ana:s3cret@a.example:7000,b.example,[::1]:7002/0?max_redirects=4")
	o := client.Options()
	got := []any{o.Addrs, o.Username, o.Password, o.MaxRedirects, o.Dialer != nil, o.ContextTimeoutEnabled}
	want := []any{[]string{"a.example:7000", "b.example:6379", "[::1]:7002"}, "ana", "s3cret", 4, true, true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseURL_Sentinel(t *testing.T) {
	t.Parallel()
	client := open[*redis.Client](t, "redis-sentinel://:watch@a,b:26380/2?master=mymaster&username=ana&password=s3cret&disableIdentity=true&identitySuffix=x")
	o := client.Options()
	got := []any{o.Addr, o.Username, o.Password, o.DB, o.TLSConfig == nil, o.ContextTimeoutEnabled, o.DisableIdentity, o.IdentitySuffix}
	want := []any{"FailoverClient", "ana", "s3cret", 2, true, true, true, "x"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseURL_Invalid(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "http://:s3cret@host", "redis-ring://:s3cret@host", "redis://:s3cret@host/zero", "redis://:s3cret@host/0?pool=7",
		"redis://:s3cret/@host/0", "redis://:12/s3cret@host/0", "redis-sentinel://:s3cret@a,b/0", "redis-cluster://:s3cret@a?addr=b",
		"redis-cluster://:s3cret@a,b/1", "redis-cluster://:s3cret@a,b?read_only=true", "redis-cluster://:s3cret@a,b?route_by_latency=true",
		"redis-sentinel://a,b/0?master=m&route_by_latency=true", "redis-sentinel://a,b/0?master=m&replica_only=true", "redis://:a?s3cret=b@host/0",
	} {
		_, err := asynqueue.ParseURL(text)
		if err == nil {
			t.Errorf("%q was accepted", text)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: the error contains the password: %v", text, err)
		}
	}
}

// open makes the client of the URL's kind; it does not connect.
func open[Client redis.UniversalClient](t *testing.T, text string) Client {
	t.Helper()
	client, ok := parse(t, text).MakeRedisClient().(Client)
	if !ok {
		t.Fatalf("%q opens another kind of client", text)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
