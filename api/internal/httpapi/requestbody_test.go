package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/waittest"
)

// stall starts requests whose bodies stop after n bytes, until the test ends.
func stall(tb testing.TB, addr string, n, size int, headers string) {
	tb.Helper()
	piece := `{"to":"` + strings.Repeat("a", size)
	for range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = conn.Close() })
		request := "POST " + headers + "\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n", len(piece)+1) + piece
		// The gateway may have stopped reading.
		_ = conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(conn, request)
	}
}

func jsonTo(path string, key apikey.Key) string {
	return path + " HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key.String()
}

// acceptSizes sends emails of several sizes for another company, which must not be delayed.
func acceptSizes(tb testing.TB, g *gateway, key apikey.Key) {
	tb.Helper()
	for _, size := range []int{100, 100 << 10, 500 << 10, 900 << 10, 1500 << 10} {
		body := emailBody(with("text", strings.Repeat("a", min(size, 500<<10))))
		body += strings.Repeat(" ", max(size-len(body), 0))
		for name, c := range map[string]call{"": {Body: body}, "in chunks": {Reader: io.MultiReader(strings.NewReader(body))}} {
			c.Method, c.Path, c.Key = http.MethodPost, "/v1/email/send", key.String()
			if r := g.do(tb, c); r.Status != http.StatusAccepted { // 503, if it waited for 5 s
				tb.Errorf("%d bytes %s: %d: %s", size, name, r.Status, r.Body)
			}
		}
	}
}

// Slow bodies, whatever their size and number of keys, do not delay other companies.
func TestBodies_OfACompanyThatIsSlow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ companies, keys, sockets, size int }{
		"sixteen sockets that begin":       {1, 1, 16, 1},
		"many keys, half a megabyte":       {1, 5, 8, 500 << 10},
		"over a megabyte":                  {1, 2, 20, 1200 << 10},
		"many sockets":                     {1, 1, 400, 3 << 10},
		"companies that fill all there is": {5, 1, 16, 500 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := start(t, nil)
			addr := g.listen(t)
			other := g.newKey(t, g.Database.Company(t), nil)
			for range tt.companies {
				company := g.Database.Company(t)
				for range tt.keys {
					stall(t, addr, tt.sockets, tt.size, jsonTo("/v1/email/send", g.newKey(t, company, nil)))
				}
			}
			acceptSizes(t, g, other)
		})
	}
}

// A company that sends too much at once gets a different error than for an overloaded gateway.
func TestBodies_TooManyOfACompany(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	addr := g.listen(t)
	stall(t, addr, 60, 1200<<10, jsonTo("/v1/email/send", g.Key))
	body := emailBody(nil) + strings.Repeat(" ", 1900<<10)
	waittest.Until(t, "one is refused", func() bool {
		r := g.send(t, body)
		if r.Status == http.StatusTooManyRequests {
			if r.problem(t).Code != "TOO_MANY_BODIES" || r.Header.Get("Retry-After") == "" {
				t.Errorf("%s", r.Body)
			}
			return true
		}
		stall(t, addr, 4, 1200<<10, jsonTo("/v1/email/send", g.Key))
		return false
	})
	acceptSizes(t, g, g.newKey(t, g.Database.Company(t), nil))
	g.accept(t, emailBody(nil)) // nor does it lock itself out
}

// Unauthenticated bodies on the SNS route neither delay the tenants nor SNS.
func TestBodies_OfStrangers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ sockets, size int }{
		"that begin": {600, 1}, "that fill all there is": {64, 400 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProvider(t, nil)
			addr := p.listen(t)
			stall(t, addr, tt.sockets, tt.size, "/v1/ses/events HTTP/1.1\r\nContent-Type: text/plain")
			acceptSizes(t, p.gateway, p.newKey(t, p.Database.Company(t), nil))
			id, token := p.attempt(t, "ana@example.com", nil)
			p.call(t, id, token, "ana@example.com")
			p.timeline(t, id, "DELIVERED")
		})
	}
}

// At most two uploads of a company are received at a time, so that slow uploads of two companies leave a
// slot for a third.
func TestUploads_OfCompaniesThatAreSlow(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	addr := g.listen(t)
	for range 2 {
		key := g.newKey(t, g.Database.Company(t), nil)
		stall(t, addr, 4, 100, "/mailings HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\nAuthorization: Bearer "+key.String())
	}
	g.mail(t, mailingForm())
}

// exchange writes requests to one connection and reads all responses, until the gateway closes it.
func exchange(tb testing.TB, addr string, requests ...string) (answers []reply, took time.Duration) {
	tb.Helper()
	start := time.Now()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(start.Add(waittest.Limit))
	for _, request := range requests {
		if _, err := io.WriteString(conn, request); err != nil {
			break
		}
	}
	reader := bufio.NewReader(conn)
	for {
		r, err := http.ReadResponse(reader, nil)
		if err != nil {
			return answers, time.Since(start)
		}
		text, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		answers = append(answers, reply{Status: r.StatusCode, Header: r.Header, Body: string(text)})
	}
}

func statuses(answers []reply) string {
	var list []string
	for _, r := range answers {
		list = append(list, fmt.Sprint(r.Status))
	}
	return strings.Join(list, " ")
}

// An unauthorized request gets its response before its body arrives.
func TestBodies_AreReadAfterTheKey(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	addr := g.listen(t)
	stranger, err := apikey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/email/send", "/v1/recipients", "/v1/suppressions", "/mailings"} {
		for _, length := range []string{"Content-Length: 10", "Content-Length: 100000", "Content-Length: 1000000", "Transfer-Encoding: chunked"} {
			answers, _ := exchange(t, addr, "POST "+jsonTo(path, stranger)+"\r\nHost: gateway\r\n"+length+"\r\n\r\n")
			if statuses(answers) != "401" { // 408, if it waited for the body
				t.Errorf("%s, %s: %q", path, length, statuses(answers))
			}
		}
	}
}

// Bodies with a wrong Content-Length, and several requests on one connection.
func TestBodies_Lengths(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	addr := g.listen(t)
	head := "POST " + jsonTo("/v1/email/send", g.Key) + "\r\nHost: gateway\r\n"
	text := emailBody(nil)
	sized := func(n int, body string) string { return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, n, body) }
	last := strings.Replace(sized(len(text), text), "\r\n", "\r\nConnection: close\r\n", 1)
	chunked := head + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(text), text)
	stranger, err := apikey.New("test")
	if err != nil {
		t.Fatal(err)
	}
	refused := strings.ReplaceAll(sized(len(text), text), g.Key.String(), stranger.String())
	for name, tt := range map[string]struct {
		requests string
		want     string
	}{
		"pipelined":                  {sized(len(text), text) + chunked + sized(len(text), text) + last, "202 202 202 202"},
		"pipelined behind a refusal": {refused + sized(len(text), text) + refused + last, "401 202 401 202"},
		"shorter than the body":      {sized(len(text)-1, text) + last, "400 400"},
		"both lengths":               {strings.Replace(chunked, "Transfer", "Content-Length: 3\r\nTransfer", 1) + last, "202 202"},
	} {
		answers, _ := exchange(t, addr, tt.requests)
		if got := statuses(answers); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// The minimum rate of a body is 64 KiB in 30 seconds.
func TestBodies_TooSlow(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	addr := g.listen(t)
	text := emailBody(nil)
	form := "/mailings HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\nAuthorization: Bearer " + g.Key.String()
	part := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\nemail\r\n" + strings.Repeat("a@b.example\r\n", 100)
	for name, request := range map[string]string{
		"a length that never comes":    "POST " + jsonTo("/v1/email/send", g.Key) + fmt.Sprintf("\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(text)+1) + text,
		"chunks that never end":        "POST " + jsonTo("/v1/recipients", g.Key) + "\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\"\r\n",
		"a large body that stops":      "POST " + jsonTo("/v1/email/send", g.Key) + "\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n" + strings.Repeat(" ", 1<<20),
		"a notification that stops":    "POST /v1/ses/events HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 2000\r\n\r\n{",
		"an upload that stops":         "POST " + form + "\r\nHost: x\r\nContent-Length: 200000\r\n\r\n" + part,
		"an upload that never ends":    "POST " + form + "\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(part), part),
		"a patch without a body there": "PATCH " + jsonTo("/v1/email/"+uuid.NewString(), g.Key) + "\r\nHost: x\r\nContent-Length: 20\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers, took := exchange(t, addr, request)
			if name == "a notification that stops" && statuses(answers) == "503" { // there is no topic
				return
			}
			if statuses(answers) != "408" || took < 28*time.Second {
				t.Fatalf("%q after %s", statuses(answers), took)
			}
			if code := answers[0].problem(t).Code; code != "BODY_TOO_SLOW" {
				t.Errorf("%s", code)
			}
		})
	}
}

// Bodies just below and above each limit, with Content-Length and chunked. Spooled bodies are removed.
func TestBodies_Sizes(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "spool")
	g := start(t, func(p *httpapi.Params) { p.SpoolDir = folder })
	text := emailBody(nil)
	for size, want := range map[int]int{
		4<<10 - 1: 202, 4 << 10: 202, 4<<10 + 1: 202, 1<<20 - 1: 202, 1 << 20: 202, 1<<20 + 1: 202, 1<<20 + 2: 202,
		2<<20 - 1: 202, 2 << 20: 202, 2<<20 + 1: 413, 3 << 20: 413,
	} {
		body := text + strings.Repeat(" ", size-len(text))
		for _, c := range []call{{Body: body}, {Reader: io.MultiReader(strings.NewReader(body))}} {
			c.Method, c.Path = http.MethodPost, "/v1/email/send"
			if r := g.do(t, c); r.Status != want {
				t.Errorf("%d bytes: %d, want %d: %s", size, r.Status, want, r.Body)
			}
		}
	}
	// More concurrent bodies than the company's memory allows. On a busy machine some time out and are retried.
	var senders sync.WaitGroup
	large := text + strings.Repeat(" ", 2<<20-len(text))
	for range 6 {
		senders.Go(func() {
			waittest.Until(t, "there is a place for a large body", func() bool {
				r := g.send(t, large)
				if r.Status != http.StatusAccepted && r.Status != http.StatusTooManyRequests {
					t.Errorf("%d %s", r.Status, r.Body)
				}
				return r.Status != http.StatusTooManyRequests
			})
		})
	}
	senders.Wait()
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if open, _ := filepath.Glob("/proc/self/fd/*"); len(open) > 0 {
		for _, fd := range open {
			if name, _ := os.Readlink(fd); strings.HasPrefix(name, folder+"/") {
				t.Errorf("%s is open", name)
			}
		}
	}
}

func TestBody_EndsEarly(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	before := g.rows(t)
	for range 3 {
		body := io.MultiReader(strings.NewReader(emailBody(nil)[:40]), errReader{})
		_, _ = g.try(t, call{Method: http.MethodPost, Path: "/v1/email/send", Reader: body})
	}
	g.accept(t, emailBody(nil))
	if n := g.rows(t) - before; n != 1 {
		t.Errorf("%d rows", n)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
