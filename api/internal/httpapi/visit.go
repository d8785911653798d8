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

// visit is what is learned about one request on its way.
type visit struct {
	requestID string
	client    netip.Addr    // whence it came
	caller    *store.Caller // nil until authenticated
	identity  *identity     // nil until the key was looked at
	began     time.Time
	outboxID  string       // the email it is about
	status    email.Status // of that email, as far as it was read; "" = it was not
	attempt   int          // its tries that count
	mailingID string       // or the mailing
	location  string       // where what it made can be looked up
	body      *inbound     // where it is received
	bodyRead  bool         // to its end
}

const visitKey = "visit"

func visitOf(c *gin.Context) *visit {
	v, _ := c.MustGet(visitKey).(*visit)
	return v
}

// visit begins every request: from here on it has an id, the client's own or a new
// one, which stands in the answer, in the log and on the email.
func (a *API) visit(c *gin.Context) {
	v := &visit{began: time.Now(), requestID: c.GetHeader("X-Request-Id"), client: a.proxies.Of(c.Request)}
	if rules.CheckRequestID(v.requestID) != nil {
		v.requestID = "req-" + uuid.NewString()
	}
	c.Set(visitKey, v)
	c.Header("X-Request-Id", v.requestID)
	c.Next()
	v.leaveBody(c)
}

// unreadTime is how long an answer waits for a body that no handler has read: net/http reads a
// short one before it answers, so that the connection can be used again.
const unreadTime = 500 * time.Millisecond

// leaveBody lets a request that was answered without its body, such as one without a key, have
// its answer now and not when the body has arrived.
func (v *visit) leaveBody(c *gin.Context) {
	if !v.bodyRead && c.Request.Body != nil && c.Request.Body != http.NoBody {
		// A connection whose deadline cannot be set has the server's.
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(unreadTime))
	}
}

// saw notes how the email is that the request is about.
func (v *visit) saw(e store.Email) {
	v.status, v.attempt = e.Status, e.Attempts-e.Throttles
	if e.MailingID != nil {
		v.mailingID = e.MailingID.String()
	}
}

// names are the attributes of a log line that say what the request is about.
func (v *visit) names() []slog.Attr {
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
