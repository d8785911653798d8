package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	eventfeed "email-gateway/api/internal/httpapi/events"
	"email-gateway/shared/waittest"
)

// revokeKey revokes the key and waits until the api refuses it.
func revokeKey(t *testing.T, g *gateway, key apikey.Key) {
	t.Helper()
	g.Run(t, `UPDATE api_keys SET revoked_at = now() WHERE key_id = $1`, key.ID)
	waittest.Until(t, "the api to refuse the key", func() bool {
		return g.do(t, call{Path: "/v1/mailings", Key: key.String()}).Status == http.StatusUnauthorized
	})
}

// A mailing whose key is revoked while it is uploaded is refused, and leaves neither a row nor a file.
func TestRevokedKey_DuringUpload(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	key := g.newKey(t, g.Company, nil)
	upload := uploadCall(t, mailingForm(), nil)
	form, err := io.ReadAll(upload.Reader)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/mailings HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		key, upload.Header["Content-Type"], len(form))
	reader := bufio.NewReader(conn)
	if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	revokeKey(t, g, key)
	if _, err := conn.Write(form); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d, want 401", answer.StatusCode)
	}
	var mailings int
	if err := g.SQL.QueryRowContext(t.Context(), `SELECT count(*) FROM mailings`).Scan(&mailings); err != nil || mailings != 0 {
		t.Errorf("%d mailings, %v", mailings, err)
	}
	_ = filepath.WalkDir(string(g.Storage), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.Contains(path, "mailings") {
			t.Errorf("the file %s was kept", path)
		}
		return nil
	})
}

// A download whose key is revoked ends at the next page.
func TestRevokedKey_DuringDownload(t *testing.T) {
	t.Parallel()
	g := startEndless(t)
	for _, path := range []string{"/rows?format=csv", "/verdicts"} {
		key := g.newKey(t, g.Company, nil)
		answer, _ := openDownload(t, g, key.String(), path)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%d", answer.StatusCode)
		}
		revokeKey(t, g, key)
		if _, err := io.Copy(io.Discard, answer.Body); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, want an aborted download", path, err)
		}
		_ = answer.Body.Close()
	}
}

// A request that waits for events gets none after its key is revoked.
func TestRevokedKey_DuringLongPoll(t *testing.T) {
	t.Parallel()
	var polls *eventfeed.Polls
	g := start(t, func(p *httpapi.Params) {
		polls = eventfeed.NewPolls(slog.New(slog.DiscardHandler), p.Feed)
		p.Polls = polls
	})
	if err := polls.Start(t.Context(), func(error) {}); err != nil {
		t.Fatal(err)
	}
	key := g.newKey(t, g.Company, nil)
	answers := make(chan reply, 1)
	go func() {
		r, err := g.try(t, call{Path: "/v1/events?wait=30", Key: key.String()})
		if err != nil {
			t.Error(err)
		}
		answers <- r
	}()
	waittest.Until(t, "the request to wait", func() bool { return polls.Waiting() == 1 })
	revokeKey(t, g, key)
	g.cancelNow(t, g.accept(t, emailBody(nil)))
	g.Programs.assign(t)
	if r := <-answers; r.Status != http.StatusUnauthorized {
		t.Errorf("%d %s, want 401", r.Status, r.Body)
	}
}
