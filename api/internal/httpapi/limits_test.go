package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"email-gateway/shared/service"
)

// listen serves the gateway like the program, with its real limits.
func (g *gateway) listen(tb testing.TB) (addr string) {
	tb.Helper()
	server := service.NewHTTP(slog.New(slog.DiscardHandler), "127.0.0.1:0", g.Handler)
	if err := server.Start(tb.Context(), func(error) {}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = server.Stop(tb.Context()) }) // the context has ended: at once
	return server.Addr()
}

// raw sends bytes over a separate connection and returns the first line of the response, or "" if the server
// closes the connection, and the duration.
func raw(tb testing.TB, addr string, pieces ...string) (string, time.Duration) {
	tb.Helper()
	start := time.Now()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(start.Add(3 * time.Minute)); err != nil {
		tb.Fatal(err)
	}
	for _, piece := range pieces {
		if _, err := io.WriteString(conn, piece); err != nil {
			break // the server has closed the connection; a response may still be readable
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() { //nolint:errorlint // the error is not wrapped
		tb.Fatalf("the server has not closed the connection after %s", time.Since(start))
	}
	return strings.TrimSpace(line), time.Since(start)
}

// A client that does not finish its headers is disconnected after 15 s, however slowly it sends.
func TestLimits_Headers(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	addr := g.listen(t)
	const begin = "POST /v1/email/send HTTP/1.1\r\nHost: gateway\r\n"
	if line, took := raw(t, addr, begin, "X-Slow: "); strings.Contains(line, " 2") || took < 14*time.Second || took > 2*time.Minute {
		t.Errorf("unfinished headers: %q after %s", line, took)
	}
	for name, headers := range map[string]string{
		"one large header":       "X-Large: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
		"many headers":           strings.Repeat("X-Many: x\r\n", 20_000) + "\r\n",
		"a long idempotency key": "Idempotency-Key: " + strings.Repeat("k", 100<<10) + "\r\n\r\n",
	} {
		if line, took := raw(t, addr, begin, headers); !strings.HasPrefix(line, "HTTP/1.1 431") || took > time.Minute {
			t.Errorf("%s: %q after %s", name, line, took)
		}
	}
	for name, request := range map[string]string{
		"a path of 100 KiB":    "GET /v1/email/" + strings.Repeat("a", 100<<10) + " HTTP/1.1\r\nHost: gateway\r\n\r\n",
		"two lengths":          begin + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
		"a negative length":    begin + "Content-Length: -1\r\n\r\n",
		"no host":              "GET /livez HTTP/1.1\r\n\r\n",
		"an unknown transfer":  begin + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"a broken chunk":       begin + "Authorization: Bearer " + g.Key.String() + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
		"a line in the header": begin + "X-A: a\x00b\r\n\r\n",
	} {
		line, _ := raw(t, addr, request)
		if !strings.HasPrefix(line, "HTTP/1.1 4") && !strings.HasPrefix(line, "HTTP/1.1 501") {
			t.Errorf("%s: %q", name, line)
		}
	}
	if n := g.rows(t); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// Bodies that are small when sent but large when decoded, or expensive to process.
func TestLimits_Bodies(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(bytes.Repeat([]byte(" "), 8<<20))
	_, _ = io.WriteString(w, emailBody(nil))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat(`{"a":`, 200_000) + "1" + strings.Repeat("}", 200_000)
	flat := strings.Repeat("[", 900_000) + strings.Repeat("]", 900_000)
	many := "{" + strings.TrimSuffix(strings.Repeat(`"a":1,`, 300_000), ",") + "}"
	inside := emailBody(with("tags", nil))
	inside = strings.Replace(inside, `"tags":null`, `"tags":`+flat, 1)
	for name, c := range map[string]struct {
		body   string
		header map[string]string
		want   int
	}{
		"compressed":         {zipped.String(), map[string]string{"Content-Encoding": "gzip"}, http.StatusUnsupportedMediaType},
		"deep":               {deep, nil, http.StatusBadRequest},
		"deep in a field":    {inside, nil, http.StatusBadRequest},
		"a field very often": {many, nil, http.StatusUnprocessableEntity},
		"a long number":      {`{"priority":` + strings.Repeat("9", 1<<20) + `}`, nil, http.StatusUnprocessableEntity},
		"too large":          {`{"to":"` + strings.Repeat("a", 2<<20) + `"}`, nil, http.StatusRequestEntityTooLarge},
		"no JSON":            {strings.Repeat("\xff", 1<<20), nil, http.StatusBadRequest},
	} {
		for _, path := range []string{"/v1/email/send", "/v1/recipients", "/v1/suppressions", "/v1/dead-letters/retry"} {
			started := time.Now()
			r := g.do(t, call{Method: http.MethodPost, Path: path, Body: c.body, Header: c.header})
			if r.Status != c.want || len(r.Body) > 64<<10 || time.Since(started) > time.Minute {
				t.Errorf("%s to %s: %d, want %d, after %s: %.300s", name, path, r.Status, c.want, time.Since(started), r.Body)
			}
		}
	}
	if n := g.rows(t); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// Forms with excessively many parts or part headers.
func TestLimits_Forms(t *testing.T) {
	t.Parallel()
	g := start(t, nil)
	for name, fill := range map[string]func(*multipart.Writer) error{
		"thousands of parts": func(w *multipart.Writer) error {
			for i := range 5000 {
				if err := w.WriteField(fmt.Sprint("part", i), "x"); err != nil {
					return err
				}
			}
			return nil
		},
		"thousands of tags": func(w *multipart.Writer) error {
			for range 5000 {
				if err := w.WriteField("tags", "x"); err != nil {
					return err
				}
			}
			return nil
		},
		"a part's headers": func(w *multipart.Writer) error {
			header := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="subject"`}}
			for i := range 20_000 {
				header.Set(fmt.Sprint("X-", i), strings.Repeat("x", 100))
			}
			_, err := w.CreatePart(header)
			return err
		},
	} {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		if err := fill(w); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		contentType := w.FormDataContentType()
		r := g.do(t, call{Method: http.MethodPost, Path: "/mailings", Reader: &body, Header: map[string]string{"Content-Type": contentType}})
		if r.Status != http.StatusBadRequest || len(r.Body) > 8<<10 {
			t.Errorf("%s: %d %.300s", name, r.Status, r.Body)
		}
		g.leavesNothing(t, name)
	}
	long := map[string]string{"Content-Type": "multipart/form-data; boundary=" + strings.Repeat("b", 5000)}
	if r := g.do(t, call{Method: http.MethodPost, Path: "/mailings", Body: "--b", Header: long}); r.Status/100 != 4 {
		t.Errorf("a long boundary: %d %s", r.Status, r.Body)
	}
	zipped := map[string]string{"Content-Encoding": "gzip"}
	if r := g.upload(t, mailingForm(), zipped); r.Status != http.StatusUnsupportedMediaType {
		t.Errorf("compressed: %d %s", r.Status, r.Body)
	}
	g.leavesNothing(t, "the others")
}
