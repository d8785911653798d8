package e2e_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"email-gateway/shared/servertest"
	"email-gateway/shared/store/storetest"
)

// Postgres, Redis and RabbitMQ use TLS with a private certificate authority: the programs trust it only through the
// settings that SECURITY.md names.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := newAuthority(t), newAuthority(t)
	at := "TLS_DIR=" + authority
	postgres, redis, rabbitmq := servertest.Start(t, "postgres", at), servertest.Start(t, "redis", at), servertest.Start(t, "rabbitmq", at)
	for name, url := range map[string]string{"sslmode=verify-full": postgres.URL, "rediss://": redis.URL, "amqps://": rabbitmq.URL} {
		if !strings.Contains(url, name) {
			t.Fatalf("%s is not %s", url, name)
		}
	}
	env := bulk(t, rabbitmq.URL)
	env["REDIS_URL"], env["SSL_CERT_FILE"] = redis.URL, filepath.Join(authority, "ca.pem")
	s := startSystemOn(t, storetest.NewOn(t, postgres.URL), env)
	sheet := newSpreadsheet(t, 20)
	s.await(s.send("ana@example.com", nil), "SENT")
	s.awaitMailing(s.mail("clientes.csv", sheet, nil), "COMPLETED")
	s.sentOnce(1 + len(sheet.people))

	t.Run("a stranger's Postgres", func(t *testing.T) {
		wrong := maps.Clone(s.env)
		wrong["DATABASE_URL"] = strings.Replace(s.db.URL, "sslrootcert="+postgres.Dir, "sslrootcert="+stranger+"/ca.pem&was=", 1)
		wrong["DATABASE_URL"], _, _ = strings.Cut(wrong["DATABASE_URL"], "&was=")
		for _, name := range []string{"api", "dispatcher", "worker"} {
			if said := refuses(t, name, wrong); !strings.Contains(said, "certificate signed by unknown authority") || !strings.Contains(said, "ping database") {
				t.Errorf("%s: %s", name, said)
			}
		}
	})
	t.Run("a Postgres in clear", func(t *testing.T) {
		wrong := maps.Clone(s.env)
		wrong["DATABASE_URL"], _, _ = strings.Cut(s.db.URL, "?")
		wrong["DATABASE_URL"] += "?sslmode=disable"
		if said := refuses(t, "api", wrong); !strings.Contains(said, "no encryption") {
			t.Errorf("%s", said)
		}
	})
	t.Run("strangers' queues", func(t *testing.T) {
		d := startProgram(t, "dispatcher", s.env, map[string]string{"SSL_CERT_FILE": filepath.Join(stranger, "ca.pem")})
		eventually(t, func() error {
			status, body := fetch(t, "http://"+d.addr+"/readyz")
			log := d.logged()
			if status != http.StatusServiceUnavailable || !strings.Contains(body, `"redis":{"status":"disconnected"}`) ||
				strings.Count(log, "certificate signed by unknown authority") < 2 || !strings.Contains(log, "no connection to rabbitmq") {
				return fmt.Errorf("%d %s\n%s", status, body, d.tail())
			}
			return nil
		})
	})
}

// refuses runs a program that must exit with an error, and returns its output.
func refuses(t *testing.T, name string, env map[string]string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(binDir, name), args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		t.Errorf("%s did not fail: %v", name, err)
	}
	return string(out)
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var body strings.Builder
	if _, err := copyAll(&body, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body.String()
}
