package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi"
	"email-gateway/shared/store"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/mailingreport"
	"email-gateway/shared/telemetry"
	"email-gateway/shared/telemetry/telemetrytest"
)

// errPanic makes the store panic.
var errPanic = errors.New("a panic")

// A download that is aborted is in the log, the metrics and the traces, with the status of its error.
func TestAborted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error // nil: the client leaves
		status int
	}{
		"fault":           {errors.New("a fault"), http.StatusInternalServerError},
		"panic":           {errPanic, http.StatusInternalServerError},
		"no database":     {store.ErrUnavailable, http.StatusServiceUnavailable},
		"the client left": {nil, 499},
	} {
		for _, download := range []string{"rows", "verdicts"} {
			t.Run(name+" "+download, func(t *testing.T) {
				t.Parallel()
				aborted(t, download, c.err, c.status)
			})
		}
	}
}

func aborted(t *testing.T, download string, failure error, status int) {
	collector := telemetrytest.Start(t)
	traces, err := telemetry.NewTracing(t.Context(), newLog(t), "api", "test", telemetry.TraceSettings{OTLPEndpoint: collector.URL, Sampler: "always_on"})
	if err != nil {
		t.Fatal(err)
	}
	reading := make(chan struct{})
	g := start(t, func(p *httpapi.Params) {
		p.Tracer = traces.Tracer()
		p.Store = incomplete{Store: p.Store, rest: func(ctx context.Context) error {
			close(reading)
			if failure == nil {
				<-ctx.Done()
				return ctx.Err()
			}
			if errors.Is(failure, errPanic) {
				panic(failure)
			}
			return failure
		}}
	})
	ended := make(chan struct{}) // the request, in the api
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		g.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	path := "/v1/mailings/" + g.mail(t, mailingForm()) + "/" + download
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if failure == nil {
		go func() { <-reading; leave() }()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+g.Key.String())
	r.Header.Set("Accept", "text/csv")
	if answer, err := http.DefaultClient.Do(r); err == nil {
		defer func() { _ = answer.Body.Close() }()
		if _, err := io.Copy(io.Discard, answer.Body); err == nil {
			t.Error("the client takes the download for complete")
		}
	}
	<-ended
	route := "/v1/mailings/:id/" + download
	var lines []string // of the request
	for line := range strings.Lines(g.Log.String()) {
		if strings.Contains(line, `"msg":"request"`) && strings.Contains(line, fmt.Sprintf(`"path":%q`, route)) {
			lines = append(lines, line)
		}
	}
	for _, part := range []string{fmt.Sprintf(`"status":%d`, status), `"companyId":"` + g.Company.String() + `"`} {
		if len(lines) != 1 || !strings.Contains(lines[0], part) {
			t.Errorf("no %s, or not one line: %s", part, lines)
		}
	}
	if line := fmt.Sprintf(`mailing_api_requests_total{disabled="no",method="GET",path=%q,status="%d"} 1`, route, status); !strings.Contains(g.metrics(t), line) {
		t.Errorf("no %s", line)
	}
	if err := traces.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var spans []string
	for _, span := range collector.Spans() {
		if span.Name == "GET "+route {
			spans = append(spans, span.Attributes["http.response.status_code"])
		}
	}
	if len(spans) != 1 || spans[0] != strconv.Itoa(status) {
		t.Errorf("spans with the status %v, want %d", spans, status)
	}
}

// A client that speaks HTTP/1.0, such as nginx by default, takes the end of the stream for the end of the response.
func TestAborted_OverHTTP10(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"fault": syscall.ECONNRESET, "complete": nil} {
		for _, download := range []string{"rows", "verdicts"} {
			t.Run(name+" "+download, func(t *testing.T) {
				t.Parallel()
				g := start(t, func(p *httpapi.Params) {
					if want != nil {
						p.Store = incomplete{Store: p.Store, rest: func(context.Context) error { return errors.New("a fault") }}
					}
				})
				path := "/v1/mailings/" + g.mail(t, mailingForm()) + "/" + download
				conn, err := net.Dial("tcp", g.listen(t))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nAuthorization: Bearer %s\r\nAccept: text/csv\r\n\r\n", path, g.Key); err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(conn); !errors.Is(err, want) || want == nil && !strings.HasPrefix(string(text), "HTTP/1.0 200") {
					t.Errorf("%v, want %v:\n%s", err, want, text)
				}
			})
		}
	}
}

// incomplete is a store that reads the beginning of a list, and then rest.
type incomplete struct {
	httpapi.Store
	rest func(ctx context.Context) error
}

func (s incomplete) MailingRows(ctx context.Context, company, id uuid.UUID, filter mailingreport.RowFilter) (mailingreport.RowPage, error) {
	if filter.After != (mailingreport.RowCursor{}) {
		return mailingreport.RowPage{}, s.rest(ctx)
	}
	page, err := s.Store.MailingRows(ctx, company, id, filter)
	page.More, page.End = true, mailingreport.RowCursor{Line: 7}
	return page, err
}

func (s incomplete) MailingVerdicts(ctx context.Context, company, id uuid.UUID) iter.Seq2[mailingstore.RejectedLine, error] {
	return func(yield func(mailingstore.RejectedLine, error) bool) {
		for line, err := range s.Store.MailingVerdicts(ctx, company, id) {
			if yield(line, err) {
				yield(mailingstore.RejectedLine{}, s.rest(ctx))
			}
			return
		}
	}
}
