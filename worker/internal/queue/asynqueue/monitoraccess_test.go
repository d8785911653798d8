package asynqueue_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"email-gateway/shared/email"
	"email-gateway/worker/internal/queue/asynqueue"
	"email-gateway/worker/internal/queue/redistest"
)

// monitorPaths are the pages, assets and API paths of the dashboard, and variants that an attacker
// may try. changing are the calls that change something.
func monitorPaths(queue string) (reading []string, changing map[string]string) {
	reading = []string{
		"", "/", "/index.html", "/manifest.json", "/favicon.ico", "/static/js/main.js", "/queues/" + queue, "//", "/./", "/%2e%2e/livez", "/../monitoring/api/queues",
		"/api", "/api/", "/api/queues", "/api/queues/" + queue, "/api/queue_stats", "/api/servers", "/api/scheduler_entries", "/api/scheduler_entries/x/enqueue_events",
		"/api/redis_info", "/api/metrics", "/API/queues", "/api//queues", "/api/queues/" + queue + "/tasks/1", "/api/queues/" + queue + "/groups",
	}
	base := "/api/queues/" + queue
	changing = map[string]string{
		base: http.MethodDelete, base + ":pause": http.MethodPost, base + ":resume": http.MethodPost,
		base + "/active_tasks/1:cancel": http.MethodPost, base + "/active_tasks:cancel_all": http.MethodPost, base + "/active_tasks:batch_cancel": http.MethodPost,
	}
	for _, state := range []string{"pending", "scheduled", "retry", "archived", "completed"} {
		tasks := base + "/" + state + "_tasks"
		reading = append(reading, tasks)
		changing[tasks+"/1"], changing[tasks+":delete_all"], changing[tasks+":batch_delete"] = http.MethodDelete, http.MethodDelete, http.MethodPost
		if state != "completed" && state != "pending" {
			changing[tasks+"/1:run"], changing[tasks+":run_all"], changing[tasks+":batch_run"] = http.MethodPost, http.MethodPost, http.MethodPost
		}
		if state == "pending" || state == "scheduled" || state == "retry" {
			changing[tasks+"/1:archive"], changing[tasks+":batch_archive"] = http.MethodPost, http.MethodPost
		}
	}
	return reading, changing
}

// Without valid credentials every path and method is denied; with them nothing changes unless the
// dashboard is writable.
func TestMonitor_AllPathsRequireCredentials(t *testing.T) {
	t.Parallel()
	url, prefix := redistest.Shared(t)
	conn := parse(t, url).WithPrefix(prefix)
	publisher := asynqueue.NewPublisher(conn)
	t.Cleanup(func() { _ = publisher.Close() })
	publish(t, publisher, "1")
	name := prefix + email.QueueNormal
	monitor := newMonitor(t, asynqueue.MonitorConfig{Conn: conn, User: user, Password: password})
	asked := 0
	ask := func(method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
		t.Helper()
		request := httptest.NewRequestWithContext(t.Context(), method, asynqueue.MonitorPath, strings.NewReader(`{"task_ids":["1"]}`))
		request.URL.Path = asynqueue.MonitorPath + path
		asked++ // each from another address, because of the limit per address
		request.RemoteAddr = netip.AddrFrom4([4]byte{198, 51, byte(asked >> 8), byte(asked)}).String() + ":1"
		if change != nil {
			change(request)
		}
		got := httptest.NewRecorder()
		monitor.ServeHTTP(got, request)
		return got
	}
	reading, changing := monitorPaths(name)
	strangers := map[string]func(*http.Request){
		"none":               nil,
		"wrong password":     func(r *http.Request) { r.SetBasicAuth(user, password+" ") },
		"wrong user":         func(r *http.Request) { r.SetBasicAuth(strings.ToUpper(user), password) },
		"empty":              func(r *http.Request) { r.SetBasicAuth("", "") },
		"a bearer token":     func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+password) },
		"without a password": func(r *http.Request) { r.Header.Set("Authorization", "Basic "+user) },
		"the address":        func(r *http.Request) { r.URL.RawQuery = "user=" + user + "&password=correct+horse" },
		"a trusted header":   func(r *http.Request) { r.Header.Set("X-Forwarded-User", user); r.RemoteAddr = "127.0.0.1:1" },
	}
	for as, change := range strangers {
		for _, path := range reading {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPost} {
				if got := ask(method, path, change); got.Code != http.StatusUnauthorized || got.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("%s: %s %s: %d", as, method, path, got.Code)
				}
			}
		}
		for path, method := range changing {
			if got := ask(method, path, change); got.Code != http.StatusUnauthorized {
				t.Errorf("%s: %s %s: %d", as, method, path, got.Code)
			}
		}
	}
	known := func(r *http.Request) { r.SetBasicAuth(user, password) }
	for path, method := range changing {
		if got := ask(method, path, known); got.Code != http.StatusMethodNotAllowed {
			t.Errorf("read-only: %s %s: %d, want 405: %s", method, path, got.Code, got.Body)
		}
	}
	got := ask(http.MethodGet, "/api/queues/"+name, known)
	if got.Code != http.StatusOK || !strings.Contains(got.Body.String(), `"pending":1,`) || !strings.Contains(got.Body.String(), `"paused":false`) {
		t.Errorf("the queue was changed: %d %s", got.Code, got.Body)
	}
}

// User and password are compared in constant time and nowhere else.
func TestMonitor_ComparesInConstantTime(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "monitor.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constant := false
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Name.Name != "same" && f.Name.Name != "authenticated" {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				constant = constant || f.Name.Name == "same" && n.Sel.Name == "ConstantTimeCompare"
			case *ast.BinaryExpr:
				if _, word := n.X.(*ast.Ident); word && (n.Op == token.EQL || n.Op == token.NEQ) {
					t.Errorf("%s compares with %s", f.Name.Name, n.Op)
				}
			}
			return true
		})
	}
	if !constant {
		t.Error("same does not use subtle.ConstantTimeCompare")
	}
}
