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

// MonitorPath is where the dashboard must be mounted, with everything below it.
const MonitorPath = "/monitoring"

// MonitorConfig makes a Monitor.
type MonitorConfig struct {
	Conn Conn
	// User and Password open the dashboard; while one is empty it stays shut.
	User, Password string
	// Writable lets its users pause queues and delete or run tasks.
	Writable bool
	// Proxies are believed when they say where a request came from.
	Proxies clientip.Proxies
}

// Monitor is the queues' dashboard: asynqmon behind a password, with everything
// about a person masked.
type Monitor struct {
	config    MonitorConfig
	guard     *clientip.Guard // of wrong passwords
	slots     chan struct{}   // for attempts of addresses that had too many
	dashboard *asynqmon.HTTPHandler
	handler   http.Handler
}

// NewMonitor makes the dashboard with connections of its own.
func NewMonitor(c MonitorConfig) *Monitor {
	m := &Monitor{config: c, guard: clientip.NewGuard(), slots: make(chan struct{}, slowAttempts)}
	if c.User == "" || c.Password == "" {
		m.handler = http.HandlerFunc(shut)
		return m
	}
	m.dashboard = asynqmon.New(asynqmon.Options{
		RootPath:         MonitorPath,
		RedisConnOpt:     c.Conn,
		ReadOnly:         !c.Writable,
		PayloadFormatter: asynqmon.PayloadFormatterFunc(maskPayload),
		ResultFormatter:  asynqmon.ResultFormatterFunc(func(string, []byte) string { return "" }), // tasks have none
	})
	// The browser adds the password to whatever any page asks it to post here.
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

// Close ends the connections.
func (m *Monitor) Close() error {
	if m.dashboard == nil {
		return nil
	}
	return m.dashboard.Close()
}

func shut(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "The queue dashboard is shut. Set MONITORING_USER and MONITORING_PASSWORD to open it.", http.StatusForbidden)
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
		// Both are compared, whatever the first says: the time taken tells nothing.
		if same(user, m.config.User)&same(password, m.config.Password) != 1 {
			if slow { // its place is taken as long as this lasts
				_ = service.Pause(r.Context(), slowAnswer)
			}
			if given {
				if retry := m.guard.Wrong(client); retry > 0 {
					tooMany(w, retry)
					return
				}
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="queues", charset="UTF-8"`)
			http.Error(w, "The queue dashboard needs a user and a password.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// An address with too many wrong passwords may try on: the right one must work for whoever
// shares the address. But each wrong one takes a second, and no more are looked at at a time
// than these, so that guessing stays slow.
const (
	slowAttempts = 8
	slowAnswer   = time.Second
)

func tooMany(w http.ResponseWriter, retry time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry.Seconds()))))
	http.Error(w, "Too many wrong passwords came from this address.", http.StatusTooManyRequests)
}

// same compares without telling by its time how much, or how long, was right.
func same(given, want string) int {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:])
}

// withoutArchiveAll takes one button away: archiving a whole list keeps 9,999 tasks
// and leaves what is left of the others in Redis for good, blocking their ids.
func withoutArchiveAll(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ":archive_all") {
			http.Error(w, "Archiving all would lose tasks. Delete them: the emails stand in the database.", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
