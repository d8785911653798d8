// Package reqctx has the state of a request: its id, its caller and the objects that it is about.
package reqctx

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/store/emails"
	"email-gateway/shared/store/tenant"
	"email-gateway/shared/telemetry"
)

// Identity is the result of checking a request's key. Retry > 0: the client's address has
// sent too many wrong keys.
type Identity struct {
	Caller *tenant.Caller
	Err    error
	Retry  time.Duration
}

// State is the state of one request.
type State struct {
	RequestID string         // the client's own or a new one
	Client    netip.Addr     // address of the client
	Caller    *tenant.Caller // nil until authenticated
	Identity  *Identity      // nil until the key is checked
	Began     time.Time
	OutboxID  string       // email of the request
	OutboxIDs []string     // of a request about several: the emails that it accepted or cancelled
	Status    email.Status // of that email; "" = not read
	attempt   int          // its tries that count towards the limit
	MailingID string       // mailing of the request
	Location  string       // Location of the created object
	BodyRead  bool         // the body was read completely
	// BodyWait returns how long the gateway has waited for the body; nil if it read none.
	BodyWait func() time.Duration
	Aborted  int  // status that the log and the metrics have for a response that was aborted; 0 = complete
	Disabled bool // the configuration switches off what was requested
}

// ProcessingTime returns how much of the request's total time is the gateway's own: the client decides how fast it
// sends the body.
func (s *State) ProcessingTime(total time.Duration) time.Duration {
	if s.BodyWait == nil {
		return total
	}
	return max(0, total-s.BodyWait())
}

// StateKey is the key of the State in a gin.Context.
const StateKey = "requestState"

// StateOf returns the state of a request.
func StateOf(c *gin.Context) *State {
	v, _ := c.MustGet(StateKey).(*State)
	return v
}

// unreadTime limits how long a response waits for a body that no handler has read: net/http reads
// a short one first, so that the connection can be reused.
const unreadTime = 500 * time.Millisecond

// LeaveBody makes the response of a request whose body was not read, such as one without a key,
// not wait for the body.
func (s *State) LeaveBody(c *gin.Context) {
	if !s.BodyRead && c.Request.Body != nil && c.Request.Body != http.NoBody {
		// If the deadline cannot be set, the server's applies.
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(unreadTime))
	}
}

// SetEmail stores the email of the request.
func (s *State) SetEmail(e emails.Email) {
	s.Status, s.attempt = e.Status, e.Attempts-e.Throttles
	if e.MailingID != nil {
		s.MailingID = e.MailingID.String()
	}
}

// LogAttributes returns the log attributes that identify the objects of the request.
func (s *State) LogAttributes() []slog.Attr {
	attributes := make([]slog.Attr, 0, 6)
	if s.Caller != nil {
		attributes = append(attributes, slog.String(telemetry.CompanyID, s.Caller.CompanyID.String()))
	}
	if s.MailingID != "" {
		attributes = append(attributes, slog.String(telemetry.MailingID, s.MailingID))
	}
	if n := len(s.OutboxIDs); n > 0 {
		attributes = append(attributes, slog.Any(telemetry.OutboxID, telemetry.IDs(n, func(i int) string { return s.OutboxIDs[i] })))
	}
	if s.OutboxID != "" {
		attributes = append(attributes, slog.String(telemetry.OutboxID, s.OutboxID))
		if s.Status != "" {
			attributes = append(attributes, slog.Int(telemetry.Attempt, s.attempt), slog.String(telemetry.State, string(s.Status)))
		}
	}
	return attributes
}

// CompanyOf returns the company of an authenticated request.
func CompanyOf(c *gin.Context) uuid.UUID { return StateOf(c).Caller.CompanyID }
