package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/mailingreport"
	"email-gateway/shared/waittest"
)

// endlessID is a mailing that each company has, and whose downloads never end.
var endlessID = uuid.MustParse("01a1fe26-7c3d-7e4f-8a5b-6c7d8e9f0a1b")

// endlessStore has the mailing endlessID.
type endlessStore struct{ httpapi.Store }

func (s endlessStore) MailingRows(ctx context.Context, company, id uuid.UUID, f mailingreport.RowFilter) (mailingreport.RowPage, error) {
	if id != endlessID {
		return s.Store.MailingRows(ctx, company, id, f)
	}
	page := mailingreport.RowPage{More: true}
	for range f.Limit {
		page.Rows = append(page.Rows, mailingreport.Row{Line: 2, Email: "ana@example.com", Status: "SENT"})
	}
	return page, ctx.Err()
}

func (s endlessStore) MailingVerdicts(ctx context.Context, company, id uuid.UUID) iter.Seq2[mailingstore.RejectedLine, error] {
	if id != endlessID {
		return s.Store.MailingVerdicts(ctx, company, id)
	}
	return func(yield func(mailingstore.RejectedLine, error) bool) {
		for yield(mailingstore.RejectedLine{Line: 2, Column: "email", Code: "SYNTAX"}, ctx.Err()) {
		}
	}
}

func startEndless(t *testing.T) *gateway {
	t.Helper()
	return start(t, func(p *httpapi.Params) { p.Store = endlessStore{p.Store} })
}

// openDownload begins a download and reads only the status and the headers of the response.
func openDownload(t *testing.T, g *gateway, key, path string) (*http.Response, net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET /v1/mailings/%s%s HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer %s\r\n\r\n", endlessID, path, key); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer, conn
}

// A company that opens many downloads and does not read them has a few at a time. It delays neither its own
// other requests nor another company's downloads.
func TestDownloads_OfClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	g := startEndless(t)
	id := g.mail(t, mailingForm())
	key := g.newKey(t, g.Database.Company(t), nil).String()
	var open []net.Conn
	for n := range 20 {
		path := []string{"/rows?format=csv", "/verdicts"}[n%2]
		answer, conn := openDownload(t, g, key, path) //nolint:bodyclose // the client does not read it
		if answer.StatusCode == http.StatusOK {
			open = append(open, conn)
			continue
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		r := reply{Status: answer.StatusCode, Header: answer.Header, Body: string(body)}
		holdToContract(t, http.MethodGet, "/v1/mailings/"+endlessID.String()+path, r)
		if r.Status != http.StatusTooManyRequests || r.problem(t).Code != "TOO_MANY_DOWNLOADS" || r.Header.Get("Retry-After") == "" {
			t.Errorf("%d %s, Retry-After %q", r.Status, r.Body, r.Header.Get("Retry-After"))
		}
	}
	if len(open) != 4 {
		t.Errorf("%d downloads are open, want 4", len(open))
	}
	if r := g.do(t, call{Path: "/v1/mailings", Key: key}); r.Status != http.StatusOK {
		t.Errorf("list of mailings: %d %s", r.Status, r.Body)
	}
	for _, path := range []string{"", "/rows", "/rows?format=csv", "/verdicts"} {
		if r := g.do(t, call{Path: "/v1/mailings/" + id + path}); r.Status != http.StatusOK {
			t.Errorf("another company's %s: %d %s", path, r.Status, r.Body)
		}
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	waittest.Until(t, "the places of closed downloads", func() bool {
		answer, _ := openDownload(t, g, key, "/rows?format=csv") //nolint:bodyclose // the client does not read it
		return answer.StatusCode == http.StatusOK
	})
}

// Companies that occupy all places with downloads that they do not read have one aborted for a company that waits.
func TestDownloads_SlowOnesMakeRoom(t *testing.T) {
	t.Parallel()
	g := startEndless(t)
	id := g.mail(t, mailingForm())
	for range 8 {
		key := g.newKey(t, g.Database.Company(t), nil).String()
		for range 4 {
			if answer, _ := openDownload(t, g, key, "/rows?format=csv"); answer.StatusCode != http.StatusOK { //nolint:bodyclose // the client does not read it
				t.Fatalf("not all places are taken: %d", answer.StatusCode)
			}
		}
	}
	if r := g.do(t, call{Path: "/v1/mailings/" + id + "/rows?format=csv"}); r.Status != http.StatusOK || strings.Count(r.Body, "\r\n") != 7 {
		t.Errorf("beside downloads of others: %d %s", r.Status, r.Body)
	}
}
