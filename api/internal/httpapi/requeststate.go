package httpapi

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/email"
	"email-gateway/shared/rules"
	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// requestState is the state of one request.
type requestState struct {
	requestID string
	client    netip.Addr    // address of the client
	caller    *store.Caller // nil until authenticated
	identity  *identity     // nil until the key is checked
	began     time.Time
	outboxID  string       // email of the request
	status    email.Status // of that email; "" = not read
	attempt   int          // its tries that count towards the limit
	mailingID string       // mailing of the request
	location  string       // Location of the created object
	body      *inbound     // the body being received
	bodyRead  bool         // completely
}

const stateKey = "requestState"

func visitOf(c *gin.Context) *requestState {
	v, _ := c.MustGet(stateKey).(*requestState)
	return v
}

// startRequest starts every request: it sets the request id, the client's own or a new one, which
// appears in the response, the log and the email.
func (a *API) startRequest(c *gin.Context) {
	v := &requestState{began: time.Now(), requestID: c.GetHeader("X-Request-Id"), client: a.proxies.Of(c.Request)}
	if rules.CheckRequestID(v.requestID) != nil {
		v.requestID = "req-" + uuid.NewString()
	}
	c.Set(stateKey, v)
	c.Header("X-Request-Id", v.requestID)
	c.Next()
	v.leaveBody(c)
}

// unreadTime limits how long a response waits for a body that no handler has read: net/http reads
// a short one first, so that the connection can be reused.
const unreadTime = 500 * time.Millisecond

// leaveBody makes the response of a request whose body was not read, such as one without a key,
// not wait for the body.
func (v *requestState) leaveBody(c *gin.Context) {
	if !v.bodyRead && c.Request.Body != nil && c.Request.Body != http.NoBody {
		// If the deadline cannot be set, the server's applies.
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(unreadTime))
	}
}

// setEmail stores the email of the request.
func (v *requestState) setEmail(e store.Email) {
	v.status, v.attempt = e.Status, e.Attempts-e.Throttles
	if e.MailingID != nil {
		v.mailingID = e.MailingID.String()
	}
}

// logAttributes returns the log attributes that identify the objects of the request.
func (v *requestState) logAttributes() []slog.Attr {
	attributes := make([]slog.Attr, 0, 6)
	if v.caller != nil {
		attributes = append(attributes, slog.String(telemetry.CompanyID, v.caller.CompanyID.String()))
	}
	if v.mailingID != "" {
		attributes = append(attributes, slog.String(telemetry.MailingID, v.mailingID))
	}
	if v.outboxID != "" {
		attributes = append(attributes, slog.String(telemetry.OutboxID, v.outboxID))
		if v.status != "" {
			attributes = append(attributes, slog.Int(telemetry.Attempt, v.attempt), slog.String(telemetry.State, string(v.status)))
		}
	}
	return attributes
}
