package asynqueue

import (
	"crypto/sha256"
	"crypto/subtle"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynqmon"

	"email-gateway/shared/clientip"
	"email-gateway/shared/service"
)

// MonitorPath is the path prefix of the dashboard.
const MonitorPath = "/monitoring"

// MonitorConfig configures a Monitor.
type MonitorConfig struct {
	Conn Conn
	// User and Password protect the dashboard; if one is empty the dashboard is disabled.
	User, Password string
	// Writable lets its users pause queues and delete or run tasks.
	Writable bool
	// Proxies are the proxies that may report the address of a client.
	Proxies clientip.Proxies
}

// Monitor is the queue dashboard: asynqmon with basic authentication and masked personal data.
type Monitor struct {
	config    MonitorConfig
	guard     *clientip.Guard // counts wrong passwords
	slots     chan struct{}   // concurrent attempts of addresses above the limit
	dashboard *asynqmon.HTTPHandler
	handler   http.Handler
}

// NewMonitor makes the dashboard with its own connections.
func NewMonitor(c MonitorConfig) *Monitor {
	m := &Monitor{config: c, guard: clientip.NewGuard(), slots: make(chan struct{}, slowAttempts)}
	if c.User == "" || c.Password == "" {
		m.handler = http.HandlerFunc(disabled)
		return m
	}
	m.dashboard = asynqmon.New(asynqmon.Options{
		RootPath:         MonitorPath,
		RedisConnOpt:     c.Conn,
		ReadOnly:         !c.Writable,
		PayloadFormatter: asynqmon.PayloadFormatterFunc(maskPayload),
		ResultFormatter:  asynqmon.ResultFormatterFunc(func(string, []byte) string { return "" }), // tasks have none
	})
	// Protects against cross-site requests: the browser sends the password with any page's POST.
	sameOrigin := http.NewCrossOriginProtection()
	m.handler = m.authenticated(sameOrigin.Handler(withoutArchiveAll(m.dashboard)))
	return m
}

// ServeHTTP implements http.Handler.
func (m *Monitor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
	w.Header().Set("Cache-Control", "no-store")
	m.handler.ServeHTTP(w, r)
}

// Close closes the connections.
func (m *Monitor) Close() error {
	if m.dashboard == nil {
		return nil
	}
	return m.dashboard.Close()
}

func disabled(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "The queue dashboard is disabled. Set MONITORING_USER and MONITORING_PASSWORD to enable it.", http.StatusForbidden)
}

func (m *Monitor) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, given := r.BasicAuth()
		client := m.config.Proxies.Of(r)
		slow := given && m.guard.Over(client)
		if slow {
			select {
			case m.slots <- struct{}{}:
				defer func() { <-m.slots }()
			default:
				tooMany(w, slowAnswer)
				return
			}
		}
		// Both are always compared, so that the response time reveals nothing.
		if same(user, m.config.User)&same(password, m.config.Password) != 1 {
			if slow { // the slot stays occupied meanwhile
				_ = service.Pause(r.Context(), slowAnswer)
			}
			if given {
				if retry := m.guard.Wrong(client); retry > 0 {
					tooMany(w, retry)
					return
				}
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="queues", charset="UTF-8"`)
			http.Error(w, "The queue dashboard requires a user and a password.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// An address with too many wrong passwords may still try, because the right password must work for all clients of that address.
// But each wrong one takes a second, and only this many are checked concurrently, so guessing is slow.
const (
	slowAttempts = 8
	slowAnswer   = time.Second
)

func tooMany(w http.ResponseWriter, retry time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry.Seconds()))))
	http.Error(w, "Too many wrong passwords from this address.", http.StatusTooManyRequests)
}

// same compares in constant time.
func same(given, want string) int {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:])
}

// withoutArchiveAll disables archiving a whole list: asynq would archive 9,999 of its tasks and leave the hashes of the others
// in Redis forever, which blocks their ids.
func withoutArchiveAll(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ":archive_all") {
			http.Error(w, "Archiving all tasks would lose some of them. Delete them instead: the emails are in the database.", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
