package e2e_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"email-gateway/shared/servertest"
)

// secret returns a word that occurs nowhere else.
func secret(of string) string { return "s3cr3t-" + of + "-do-not-log" }

// secretKey is a key of 32 bytes that can be recognised, in base64.
func secretKey(of string) string {
	return base64.StdEncoding.EncodeToString([]byte((secret(of) + strings.Repeat("!", 32))[:32]))
}

// personal is the personal data in the requests.
var personal = []string{"529.982.247-25", "52998224725", "111.111.111-11", "maria.sigilosa@cliente.example", "Maria Sigilosa", "Assunto Sigilosa", "corpo sigilosa"}

// secretEnv has a secret in every variable that may contain one.
func secretEnv(t *testing.T) map[string]string {
	t.Helper()
	env := bulk(t, "")
	maps.Copy(env, map[string]string{
		"CPF_CNPJ_KEYS": "2026a:" + secretKey("cpf") + ",2025a:" + secretKey("old"), "CPF_CNPJ_HASH_KEY": secretKey("hash"), "UNSUBSCRIBE_KEY": secretKey("link"),
		"MONITORING_USER": "ops", "MONITORING_PASSWORD": secret("monitoring"), "LOG_LEVEL": "debug", "WORKER_CONCURRENCY": "4",
		"AWS_ACCESS_KEY_ID": "AKIASECRETDONOTLOG", "AWS_SECRET_ACCESS_KEY": secret("aws"), "AWS_SESSION_TOKEN": secret("session"),
	})
	return env
}

// secretChecker checks the output of programs for secrets.
type secretChecker struct {
	t       *testing.T
	secrets []string
	checked int
}

func newSecretChecker(t *testing.T, env map[string]string) *secretChecker {
	t.Helper()
	w := &secretChecker{t: t, secrets: slices.Clone(personal)}
	for _, name := range []string{"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "MONITORING_PASSWORD", "UNSUBSCRIBE_KEY", "CPF_CNPJ_HASH_KEY"} {
		w.secrets = append(w.secrets, env[name])
	}
	w.secrets = append(w.secrets, "s3cr3t", "do-not-log", secretKey("cpf"), secretKey("old"), base64.StdEncoding.EncodeToString([]byte("ops:"+secret("monitoring"))))
	return w
}

// check fails the test if the text contains a secret.
func (w *secretChecker) check(source, text string) {
	w.t.Helper()
	w.checked += len(text)
	for _, word := range w.secrets {
		if i := strings.Index(text, word); i >= 0 {
			w.t.Errorf("%s contains %q: …%s…", source, word, text[max(0, i-300):min(len(text), i+100)])
		}
	}
}

// The programs run with secrets in every setting and requests full of confidential data while every server fails: no
// log at level debug, no response of the api and no metric contains them.
func TestSecrets_AtWork(t *testing.T) {
	t.Parallel()
	rabbitmq := servertest.Start(t, "rabbitmq")
	rabbitmq.RabbitMQCtl("change_password", "gateway", secret("rabbitmq"))
	env := secretEnv(t)
	env["RABBITMQ_URL"] = strings.Replace(rabbitmq.URL, "gateway:gateway@", "gateway:"+secret("rabbitmq")+"@", 1)
	s := startSystem(t, env)
	w := newSecretChecker(t, s.env)
	protectRedis(s, secret("redis"))
	s.env["REDIS_URL"] = strings.Replace(s.redis.URL, "redis://", "redis://:"+secret("redis")+"@", 1)
	u, err := url.Parse(s.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), secret("postgres")) // which trusts all users and gets it nevertheless
	s.env["DATABASE_URL"] = u.String()
	for _, p := range []**program{&s.api, &s.dispatcher, &s.worker} {
		s.restart(p)
	}
	_, half, _ := strings.Cut(strings.TrimPrefix(s.key, "gw_"), "_")
	_, own, _ := strings.Cut(half, "_")
	w.secrets = append(w.secrets, own)

	confidential := func(b map[string]any) {
		b["subject"], b["html"] = "Assunto Sigilosa", "<p>corpo sigilosa</p>"
		b["recipient"] = map[string]any{"cpfCnpj": "529.982.247-25", "nome": "Maria Sigilosa", "email": b["to"]}
	}
	s.await(s.send("maria.sigilosa@cliente.example", confidential), "SENT")
	badRequests(s, w, confidential)

	if err := s.ses.SetSettings(slowedBy(s.ses.Settings(), 200)); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		s.send("maria.sigilosa+sim-unavailable-json-x1@cliente.example", confidential)
	}
	s.send("maria.sigilosa+sim-bad-request@cliente.example", confidential)
	sheet := []byte("email;nome;cpf\nmaria.sigilosa@cliente.example;Maria Sigilosa;529.982.247-25\njoao@cliente.example;João;111.111.111-11\n")
	if status, answer := s.upload("sigilosa.csv", sheet, map[string]string{"html": "<p>corpo sigilosa</p>", "subject": "Assunto Sigilosa", "text": "x"}); status != http.StatusAccepted {
		t.Fatalf("%d %s", status, answer)
	}
	s.redis.Stop()
	rabbitmq.Stop()
	breakDatabase(s, func() {
		for _, p := range []*program{s.api, s.dispatcher, s.worker} {
			eventually(t, func() error {
				// The first answers may be ACCEPT_UNKNOWN, for which the api logs no cause.
				w.check("an answer without a database", answerTo(s, http.MethodPost, "/v1/email/send", newBody("maria.sigilosa@cliente.example", confidential)))
				if !strings.Contains(p.logged(), "not currently accepting connections") {
					return fmt.Errorf("%s does not complain:\n%s", p.name, p.tail())
				}
				return nil
			})
		}
	})
	for _, p := range []*program{s.api, s.dispatcher, s.worker} {
		w.check(p.name, p.logged())
		if _, metrics := fetch(t, p.metricsURL()); len(metrics) > 1000 {
			w.check("the metrics of "+p.name, metrics)
		} else {
			t.Errorf("no metrics of %s: %s", p.name, metrics)
		}
	}
	if w.checked < 30_000 {
		t.Errorf("only %d bytes were checked", w.checked)
	}
}

// protectRedis gives Redis a password.
func protectRedis(s *system, password string) {
	s.t.Helper()
	if err := s.redisClient().ConfigSet(s.t.Context(), "requirepass", password).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// badRequests are invalid in ways that make an api quote them.
func badRequests(s *system, w *secretChecker, confidential func(map[string]any)) {
	s.t.Helper()
	right := newBody("maria.sigilosa@cliente.example", confidential)
	wrong := newBody("maria.sigilosa@cliente.example", func(b map[string]any) {
		confidential(b)
		b["to"] = []string{"maria.sigilosa@cliente.example"}
		b["recipient"] = map[string]any{"cpfCnpj": "111.111.111-11", "nome": "Maria Sigilosa", "email": "x"}
		b["headers"] = map[string]any{"X-Chave": "a\r\n" + secret("header")}
	})
	text, err := json.Marshal(right)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range []struct {
		method, path, body string
		header             map[string]string
	}{
		{"POST", "/v1/email/send", string(text), map[string]string{"Authorization": "Bearer " + secret("key")}},
		{"POST", "/v1/email/send", string(text), map[string]string{"Authorization": "Bearer gw_live_abcdefghijklmnop_s3cr3tdonotlog"}},
		{"POST", "/v1/email/send", string(text), map[string]string{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("ops:"+secret("monitoring")))}},
		{"POST", "/v1/email/send", string(text), map[string]string{"X-API-Key": secret("key"), "Authorization": ""}},
		{"POST", "/v1/email/send", string(text), map[string]string{"Idempotency-Key": secret("idempotency")}},
		{"POST", "/v1/email/send", string(text), map[string]string{"Idempotency-Key": strings.Repeat(secret("long"), 30)}},
		{"POST", "/v1/email/send", string(text[:len(text)-9]), nil},
		{"POST", "/v1/email/send", `{"` + secret("field") + `": 1, "to": "maria.sigilosa@cliente.example"}`, nil},
		{"POST", "/v1/recipients", `{"cpfCnpj": "111.111.111-11", "email": "maria.sigilosa@cliente.example"}`, nil},
		{"POST", "/v1/suppressions", `{"address": "maria.sigilosa@cliente.example", "note": "` + secret("note") + `"}`, nil},
		{"GET", "/v1/emails?recipient=maria.sigilosa%40cliente.example&cursor=" + secret("cursor"), "", nil},
		{"GET", "/v1/email/" + secret("id"), "", nil},
		{"GET", "/u/" + secret("token"), "", nil},
		{"POST", "/u/" + secret("token"), "", nil},
		{"GET", "/" + secret("path") + "?key=" + secret("query"), "", map[string]string{"Cookie": secret("cookie"), "Referer": "https://x/" + secret("referer"), "User-Agent": secret("agent")}},
		{"POST", "/v1/ses/events", `{"Type":"Notification","Token":"` + secret("sns") + `","Message":"maria.sigilosa@cliente.example"}`, map[string]string{"Content-Type": "text/plain"}},
		{"POST", "/mailings", "--x\r\n" + secret("form"), map[string]string{"Content-Type": "multipart/form-data; boundary=x"}},
	} {
		request, err := http.NewRequestWithContext(s.t.Context(), r.method, "http://"+s.api.addr+r.path, strings.NewReader(r.body))
		if err != nil {
			s.t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+s.key)
		request.Header.Set("Content-Type", "application/json")
		for name, value := range r.header {
			request.Header.Set(name, value)
		}
		response, err := httpClient.Do(request)
		if err != nil {
			s.t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	_ = answerTo(s, http.MethodPost, "/v1/email/send", wrong)
	for _, password := range []string{secret("monitoring"), secret("guess")} {
		request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.worker.addr+"/monitoring/api/queues", nil)
		if err != nil {
			s.t.Fatal(err)
		}
		request.SetBasicAuth("ops", password)
		response, err := httpClient.Do(request)
		if err != nil {
			s.t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	w.check("the api", s.api.logged())
}

func answerTo(s *system, method, path string, body any) string {
	s.t.Helper()
	_, answer := s.call(method, path, body, nil)
	return string(answer)
}

// breakDatabase ends every connection and refuses new ones while f runs.
func breakDatabase(s *system, f func()) {
	s.t.Helper()
	admin, err := sql.Open("postgres", os.Getenv("DATABASE_URL")) // from elsewhere: a session cannot end itself
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	run := func(statement string) {
		if _, err := admin.ExecContext(context.WithoutCancel(s.t.Context()), statement); err != nil {
			s.t.Errorf("%s: %v", statement, err)
		}
	}
	u, err := url.Parse(s.db.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false")
	defer run("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'")
	f()
}

// Programs that cannot start name the variable that is wrong, but not its value.
func TestSecrets_WhenStartFails(t *testing.T) {
	t.Parallel()
	good := secretEnv(t)
	maps.Copy(good, map[string]string{
		// Postgres answers that the database does not exist: without a response the programs would wait for one.
		"DATABASE_URL": "postgres://gateway:" + secret("pg") + "@" + postgresAddress(t) + "/none?sslmode=disable", "REDIS_URL": "redis://:" + secret("redis") + "@127.0.0.1:1/0",
		"RABBITMQ_URL": "amqp://u:" + secret("rabbitmq") + "@127.0.0.1:1/", "SES_ENDPOINT": "http://127.0.0.1:1", "AWS_REGION": "us-east-1",
		"API_ADDR": "127.0.0.1:0", "DISPATCHER_ADDR": "127.0.0.1:0", "WORKER_ADDR": "127.0.0.1:0",
	})
	w := newSecretChecker(t, good)
	s := secret("value")
	for _, change := range []struct{ name, value string }{
		{"nothing", ""},
		{"DATABASE_URL", "postgres://gateway:" + s + "/x@127.0.0.1:1/x"},
		{"DATABASE_URL", "mysql://gateway:" + s + "@h/x"},
		{"DATABASE_URL", "password=" + s},
		{"DATABASE_URL", "postgres://gateway:" + s + "%zz@h/x"},
		{"REDIS_URL", "redis://:12/" + s + "@127.0.0.1:1/0"},
		{"REDIS_URL", "http://:" + s + "@h"},
		{"REDIS_URL", "redis://:" + s + "%zz@h:1/0"},
		{"REDIS_URL", "redis-sentinel://:" + s + "@h/0"},
		{"RABBITMQ_URL", "amqp://u:" + s + "@h:port/"},
		{"RABBITMQ_URL", "http://u:" + s + "@h"},
		{"RABBITMQ_URL", "amqp://u:" + s + "%zz@h/"},
		{"CPF_CNPJ_KEYS", s},
		{"CPF_CNPJ_KEYS", "a:" + s},
		{"CPF_CNPJ_HASH_KEY", s},
		{"UNSUBSCRIBE_KEY", s},
		{"STORAGE_URL", "s3://" + s + ":" + s + "@bucket"},
		{"STORAGE_URL", "s3://bucket?secret=" + s},
		{"STORAGE_URL", "ftp://u:" + s + "@h/"},
		{"SES_ENDPOINT", "http://u:" + s + "%zz@h"},
		{"SES_ENDPOINT", "ftp://u:" + s + "@h"},
		{"SES_EVENTS_TRUSTED_URL", "http://u:" + s + "@h/"},
		{"PUBLIC_URL", "ftp://u:" + s + "@h"},
		{"DATABASE_LISTEN_URL", "postgres://gateway:" + s + "%zz@h/x"},
	} {
		env := maps.Clone(good)
		env[change.name] = change.value
		for _, name := range readers(change.name) {
			said := refuses(t, name, env)
			w.check(fmt.Sprintf("%s with a wrong %s (%s)", name, change.name, change.value), said)
			if said == "" {
				t.Errorf("%s with a wrong %s says nothing", name, change.name)
			}
		}
		if change.name == "DATABASE_URL" || change.name == "nothing" {
			w.check("migrate", refuses(t, "migrate", env, "up"))
			w.check("gatewayctl", refuses(t, "gatewayctl", env, "company", "list"))
		}
	}
	// It is parsed as the host gateway, port 12, which cannot be reached: the programs wait for it, commands end.
	good["DATABASE_URL"] = "postgres://gateway:12/" + s + "@127.0.0.1:1/x"
	w.check("migrate", refuses(t, "migrate", good, "up"))
	w.check("gatewayctl", refuses(t, "gatewayctl", good, "company", "list"))
}

// postgresAddress is the address of the tests' Postgres.
func postgresAddress(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(os.Getenv("DATABASE_URL"))
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// readers are the programs that read a variable.
func readers(name string) []string {
	switch name {
	case "REDIS_URL":
		return []string{"dispatcher", "worker"}
	case "CPF_CNPJ_KEYS", "CPF_CNPJ_HASH_KEY", "SES_EVENTS_TRUSTED_URL":
		return []string{"api"}
	case "STORAGE_URL":
		return []string{"api", "dispatcher"}
	case "UNSUBSCRIBE_KEY", "PUBLIC_URL":
		return []string{"api", "worker"}
	case "SES_ENDPOINT":
		return []string{"worker"}
	case "DATABASE_LISTEN_URL":
		return []string{"dispatcher"}
	}
	return []string{"api", "dispatcher", "worker"}
}

// A key is printed once, to its creator.
func TestSecrets_KeyIsShownOnce(t *testing.T) {
	t.Parallel()
	s := startSystem(t, nil)
	_, own, _ := strings.Cut(strings.TrimPrefix(s.key, "gw_"), "_")
	id, own, _ := strings.Cut(own, "_")
	for _, args := range [][]string{{"key", "list", "--company", "Acme"}, {"key", "list", "--company", "Acme", "--json"}, {"company", "list"}} {
		if out := s.gatewayctl(args...); strings.Contains(out, own) || args[0] == "key" && !strings.Contains(out, id) {
			t.Errorf("gatewayctl %v: %s", args, out)
		}
	}
	cmd := exec.CommandContext(t.Context(), "pg_dump", "--data-only", "--inserts", s.db.URL)
	var dump bytes.Buffer
	cmd.Stdout = &dump
	if err := cmd.Run(); err != nil { // it comes with Postgres
		t.Fatal(err)
	}
	if strings.Contains(dump.String(), own) || !regexp.MustCompile(`INSERT INTO public.api_keys.*`+id).MatchString(dump.String()) {
		t.Error("the database holds the secret in clear, or no key")
	}
}
