package service_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"email-gateway/shared/service"
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			t.Errorf("requested %s, want /livez", r.URL.Path)
		}
		w.WriteHeader(code)
	}))
	addr := server.Listener.Addr().String()
	_, port, _ := strings.Cut(addr, ":")
	for _, listen := range []string{addr, ":" + port, "0.0.0.0:" + port} {
		if err := service.Healthcheck(t.Context(), listen); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
	code = http.StatusServiceUnavailable
	if err := service.Healthcheck(t.Context(), addr); err == nil {
		t.Error("the healthcheck accepts 503")
	}
	server.Close()
	if err := service.Healthcheck(t.Context(), addr); err == nil {
		t.Error("the healthcheck accepts a refused connection")
	}
}
