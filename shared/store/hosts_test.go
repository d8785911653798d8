package store_test

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/store"
	"email-gateway/shared/store/storetest"
)

// If a server does not answer, like one that lost its power, a caller with a short timeout still reaches the other one.
func TestOpen_SilentServer(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, first := range []bool{true, false} {
		u := mustParse(t, d.URL)
		servers := []string{silent.Addr().String(), u.Host}
		if !first {
			servers[0], servers[1] = servers[1], servers[0]
		}
		u.Host = strings.Join(servers, ",")
		s := open(t, strings.Replace(u.String(), "%2C", ",", 1)+"&target_session_attrs=read-write", store.Options{AllowUnreachable: true})
		for range 3 {
			// On a busy machine the short timeout may be too short for Postgres alone.
			err := s.Confirm(t.Context())
			for end := time.Now().Add(3 * time.Minute); err != nil && time.Now().Before(end) && connectTime(t, d.URL) > 300*time.Millisecond; {
				err = s.Confirm(t.Context())
			}
			if err != nil {
				t.Errorf("%v: %v", servers, err)
			}
		}
	}
}

// connectTime is how long a new connection and one statement take.
func connectTime(t *testing.T, databaseURL string) time.Duration {
	t.Helper()
	start := time.Now()
	s, err := store.Open(t.Context(), databaseURL, store.Options{AllowUnreachable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_ = s.Confirm(t.Context())
	return time.Since(start)
}

// While no server accepts writes the database counts as unavailable: a program that starts then waits for the promotion.
func TestOpen_NoServerTakesWrites(t *testing.T) {
	t.Parallel()
	d := storetest.New(t)
	name := strings.TrimPrefix(mustParse(t, d.URL).Path, "/")
	if _, err := d.SQL.ExecContext(t.Context(), `ALTER DATABASE `+name+` SET default_transaction_read_only = on`); err != nil {
		t.Fatal(err)
	}
	address := d.URL + "&target_session_attrs=read-write"
	if _, err := store.Open(t.Context(), address, store.Options{}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("open: %v, want ErrUnavailable", err)
	}
	s, err := store.Open(t.Context(), address, store.Options{AllowUnreachable: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Companies(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("read: %v, want ErrUnavailable", err)
	}
}

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
