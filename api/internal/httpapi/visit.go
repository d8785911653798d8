package httpapi

import (
	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/rules"
	"email-gateway/shared/store"
)

// visit is what is learned about one request on its way.
type visit struct {
	requestID string
	caller    *store.Caller // nil until authenticated
	outboxID  string        // the email it is about
	mailingID string        // or the mailing
	location  string        // where what it made can be looked up
}

const visitKey = "visit"

func visitOf(c *gin.Context) *visit {
	v, _ := c.MustGet(visitKey).(*visit)
	return v
}

// visit begins every request: from here on it has an id, the client's own or a new
// one, which stands in the answer, in the log and on the email.
func (a *API) visit(c *gin.Context) {
	v := &visit{requestID: c.GetHeader("X-Request-Id")}
	if rules.CheckRequestID(v.requestID) != nil {
		v.requestID = "req-" + uuid.NewString()
	}
	c.Set(visitKey, v)
	c.Header("X-Request-Id", v.requestID)
}
