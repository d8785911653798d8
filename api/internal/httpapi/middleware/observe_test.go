package middleware_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"email-gateway/api/internal/httpapi/middleware"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/shared/telemetry"
)

// The duration that an alert measures is the gateway's: not the time that the client takes to send the body, but what follows it.
func TestObserve_SlowBody(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		work time.Duration
		want []string
	}{
		"a slow client":  {work: 0, want: []string{bucket("0.001", 1)}},
		"a slow gateway": {work: 700 * time.Millisecond, want: []string{bucket("0.5", 0), bucket("1", 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				m, err := middleware.New(middleware.Params{Log: slog.New(slog.DiscardHandler), Registry: registry})
				if err != nil {
					t.Fatal(err)
				}
				gin.SetMode(gin.ReleaseMode)
				r := gin.New()
				m.Use(r)
				r.POST("/", m.Answer(func(c *gin.Context) error {
					body := reqbody.NewSlowBody(c, 1<<20, reqbody.MinPace, time.Minute)
					if _, err := io.Copy(io.Discard, body); err != nil {
						return err
					}
					<-time.After(tt.work)
					return nil
				}))
				body, client := io.Pipe()
				go func() {
					for range 4 {
						<-time.After(500 * time.Millisecond)
						_, _ = io.WriteString(client, "x")
					}
					_ = client.Close()
				}()
				r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body))
				shown := httptest.NewRecorder()
				telemetry.MetricsHandler(registry).ServeHTTP(shown, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
				for _, line := range tt.want {
					if !strings.Contains(shown.Body.String(), line) {
						t.Errorf("no %s in\n%s", line, shown.Body)
					}
				}
			})
		})
	}
}

func bucket(limit string, n int) string {
	return fmt.Sprintf(`mailing_api_request_duration_seconds_bucket{method="POST",path="/",le=%q} %d`, limit, n)
}
