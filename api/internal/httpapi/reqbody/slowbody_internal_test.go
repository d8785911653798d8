package reqbody

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
)

// A client may be slower than the server's own limit, but must not stop.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	const quiet = 2 * time.Second
	ended := make(chan error, 1)
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.POST("/", func(c *gin.Context) {
		c.Set(reqctx.StateKey, &reqctx.State{})
		b := NewSlowBody(c, 1<<20, Pace{bytes: 2, each: quiet}, time.Minute)
		_, err := io.Copy(io.Discard, b)
		ended <- err
		b.Finish()
		c.String(http.StatusOK, "seen")
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		router.ServeHTTP(response.Writer{ResponseWriter: w}, r)
	}))
	server.Config.ReadTimeout = quiet / 2 // for a request as a whole
	server.Config.WriteTimeout = quiet / 2
	server.Start()
	defer server.Close()
	post := func(body io.Reader) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
		if err != nil {
			return err.Error()
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return string(text)
	}
	slow, pipe := io.Pipe()
	go func() {
		tick := time.NewTicker(quiet / 8)
		defer tick.Stop()
		for range 24 { // three times quiet
			<-tick.C
			_, _ = io.WriteString(pipe, "x")
		}
		_ = pipe.Close()
	}()
	if got := post(slow); got != "seen" {
		t.Errorf("a slow client got %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("a slow client: %v", err)
	}
	silent, _ := io.Pipe()
	go post(silent)
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent client: %v", err)
	}
	_ = silent.Close()
	var tooLarge *http.MaxBytesError
	if got := post(strings.NewReader(strings.Repeat("x", 1<<20+1))); got != "seen" {
		t.Errorf("a body that is too large: %q", got)
	}
	if err := <-ended; !errors.As(err, &tooLarge) {
		t.Errorf("a body that is too large: %v", err)
	}
}
