package httpapi

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/apikey"
	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/httpapi/deadletters"
	"email-gateway/api/internal/httpapi/files"
	"email-gateway/api/internal/httpapi/health"
	"email-gateway/api/internal/httpapi/middleware"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqbody"
	"email-gateway/api/internal/httpapi/templates"
	"email-gateway/api/internal/httpapi/unsubscribepage"
)

// routes creates the router of all routes.
func (h *handlers) routes(p Params) *gin.Engine {
	gin.SetMode(gin.ReleaseMode) // the other modes print to standard output
	r := gin.New()
	r.RedirectTrailingSlash = false
	r.HandleMethodNotAllowed = true
	h.Use(r)

	alsoHead(r, "/livez", health.ShowLive)
	alsoHead(r, "/readyz", h.health.ShowReady)
	alsoHead(r, "/health", h.health.Show)
	alsoHead(r, "/openapi.yaml", func(c *gin.Context) { c.Data(http.StatusOK, "application/yaml", []byte(p.OpenAPI)) })

	send := h.group(r, "/v1", apikey.EmailsSend)
	send.POST("/email/send", h.Answer(h.bodies.sends.Limit), h.Answer(h.sending.Send))
	batch := h.authorized(r, "/v1", apikey.EmailsSend) // it reads the parameter mode
	batch.POST("/email/batch", h.Answer(h.bodies.batches.Limit), h.Answer(h.sending.SendBatch))
	h.step(send, "/email/:id/cancel", h.emails.Cancel)
	h.step(send, "/email/:id/retry", h.emails.Retry)
	send.PATCH("/email/:id", h.Answer(h.bodies.others.Limit), h.Answer(h.emails.Reschedule))
	h.step(send, "/aggregates/:type/:id/cancel", h.emails.CancelAggregate)

	read := h.group(r, "/v1", apikey.EmailsRead)
	read.GET("/email/:id", h.Answer(h.emails.Show))
	read.GET("/emails", h.Answer(h.emails.List))
	read.GET("/events", h.Answer(h.events.List))
	read.GET("/usage", h.Answer(h.usage.Show))

	people := h.group(r, "/v1/recipients", apikey.RecipientsWrite)
	people.POST("", h.Answer(middleware.RequireRabbitMQ(p.HasRabbitMQ)), h.Answer(h.bodies.others.Limit), h.Answer(h.recipients.Add))
	people.GET("/:id", h.Answer(h.recipients.Show))
	people.DELETE("/:id", h.Answer(h.recipients.Delete))

	suppress := h.group(r, "/v1/suppressions", apikey.SuppressionsWrite)
	suppress.GET("", h.Answer(h.suppressions.List))
	suppress.POST("", h.Answer(h.bodies.others.Limit), h.Answer(h.suppressions.Add))
	suppress.DELETE("", h.Answer(h.suppressions.Remove))

	letters := h.group(r, "/v1/dead-letters", apikey.DeadLettersWrite)
	letters.GET("", h.Answer(h.deadLetters.List))
	letters.GET("/:id", h.Answer(h.deadLetters.Show))
	h.step(letters, "/:id/retry", h.deadLetters.Retry)
	letters.POST("/:id/discard", h.Answer(h.bodies.others.Limit), h.Answer(h.deadLetters.Discard))
	letters.POST("/retry", h.Answer(accept.RefuseKey), h.Answer(h.bodies.others.Limit), h.Answer(h.deadLetters.RetryAll))
	letters.POST("/discard", h.Answer(accept.RefuseKey), h.Answer(h.bodies.others.Limit), h.Answer(h.deadLetters.DiscardAll))

	replays := h.group(r, deadletters.ReplayPath, apikey.DeadLettersWrite)
	replays.GET("/:id", h.Answer(h.deadLetters.ShowReplay))

	alsoHead(r, unsubscribepage.Path, h.Answer(h.unsubscribe.Ask))
	r.POST(unsubscribepage.Path, h.Answer(h.unsubscribe.Unsubscribe))
	r.POST("/v1/ses/events", h.Answer(h.bodies.notifications.Limit), h.Answer(h.sesEvents.Receive))

	h.routeMailings(r, p)
	h.routeTemplates(r)
	h.routeFiles(r)
	h.routeWebhooks(r)
	h.Expect(r.Routes())
	return r
}

// alsoHead adds a route for GET and HEAD: monitors, load balancers and link checkers use HEAD, and net/http leaves out the body.
func alsoHead(r *gin.Engine, path string, handle gin.HandlerFunc) {
	r.GET(path, handle)
	r.HEAD(path, handle)
}

// authorized creates a group of routes for which a key needs the scope.
func (h *handlers) authorized(r *gin.Engine, path, scope string) *gin.RouterGroup {
	return r.Group(path, h.Answer(h.Authenticate), h.Answer(middleware.RequireScope(scope)))
}

// group is authorized for routes whose POST and PATCH requests have no query parameters.
func (h *handlers) group(r *gin.Engine, path, scope string) *gin.RouterGroup {
	return h.authorized(r, path, scope).Group("", h.Answer(query.Refuse))
}

// step registers a route that takes a step of an object and has no options. It refuses fields, which would
// otherwise be dropped: with {"sendAt": …} a client expects /start to wait, with {"eventType": …} that some emails of an
// aggregate are cancelled.
func (h *handlers) step(routes *gin.RouterGroup, path string, take func(*gin.Context) error) {
	routes.POST(path, h.Answer(h.bodies.others.Limit), h.Answer(reqbody.RefuseFields), h.Answer(take))
}

// routeMailings registers the routes under both prefixes: /mailings for existing clients, /v1
// like all other routes. Without RabbitMQ, mailings cannot be started, but existing ones can be
// read and stopped.
func (h *handlers) routeMailings(r *gin.Engine, p Params) {
	for _, prefix := range []string{"", "/v1"} {
		read := h.group(r, prefix+"/mailings", apikey.MailingsRead)
		read.GET("", h.Answer(h.mailings.List))
		read.GET("/:id", h.Answer(h.mailings.Show))
		read.GET("/:id/entries", h.Answer(h.mailings.ListEntries))
		read.GET("/:id/rows", h.Answer(h.mailings.ListRows))
		read.GET("/:id/verdicts", h.Answer(h.mailings.DownloadVerdicts))

		write := h.group(r, prefix+"/mailings", apikey.MailingsWrite)
		h.step(write, "/:id/pause", h.mailings.Pause)
		h.step(write, "/:id/cancel", h.mailings.Cancel)

		start := write.Group("", h.Answer(middleware.RequireRabbitMQ(p.HasRabbitMQ)))
		start.POST("", h.Answer(h.mailings.Create))
		start.PATCH("/:id", h.Answer(h.bodies.others.Limit), h.Answer(h.mailings.Reschedule))
		h.step(start, "/:id/start", h.mailings.Start)
		h.step(start, "/:id/resume", h.mailings.Resume)
		h.step(start, "/:id/retry-failed", h.mailings.RetryFailed)
	}
}

func (h *handlers) routeTemplates(r *gin.Engine) {
	write := h.group(r, templates.Path, apikey.TemplatesWrite)
	write.POST("", h.Answer(h.bodies.others.Limit), h.Answer(h.templates.Create))
	write.POST("/:name/publish", h.Answer(h.bodies.others.Limit), h.Answer(h.templates.Publish))
	write.DELETE("/:name", h.Answer(h.templates.Delete))

	read := h.group(r, templates.Path, apikey.TemplatesRead)
	read.GET("", h.Answer(h.templates.List))
	read.GET("/:name", h.Answer(h.templates.Show))
	read.GET("/:name/versions/:version", h.Answer(h.bodies.others.Limit), h.Answer(h.templates.ShowVersion))
	read.POST("/:name/preview", h.Answer(h.bodies.others.Limit), h.Answer(h.templates.Preview))
}

func (h *handlers) routeFiles(r *gin.Engine) {
	write := h.group(r, files.Path, apikey.EmailsSend)
	write.POST("", h.Answer(h.bodies.files.Limit), h.Answer(h.files.Upload))

	read := h.group(r, files.Path, apikey.EmailsRead)
	read.GET("", h.Answer(h.files.List))
	read.GET("/:id", h.Answer(h.files.Show))
}

func (h *handlers) routeWebhooks(r *gin.Engine) {
	read := h.group(r, "/v1/webhooks", apikey.WebhooksRead)
	read.GET("", h.Answer(h.webhooks.List))
	read.GET("/:id", h.Answer(h.webhooks.Show))
	read.GET("/:id/deliveries", h.Answer(h.webhooks.ListDeliveries))
	read.GET("/:id/deliveries/:delivery", h.Answer(h.webhooks.ShowDelivery))
	read.GET("/:id/replays/:replay", h.Answer(h.webhooks.ShowReplay))

	write := h.group(r, "/v1/webhooks", apikey.WebhooksWrite)
	write.POST("", h.Answer(h.bodies.others.Limit), h.Answer(h.webhooks.Create))
	write.PATCH("/:id", h.Answer(h.bodies.others.Limit), h.Answer(h.webhooks.Change))
	write.DELETE("/:id", h.Answer(h.webhooks.Delete))
	h.step(write, "/:id/rotate-secret", h.webhooks.RotateSecret)
	h.step(write, "/:id/enable", h.webhooks.Enable)
	h.step(write, "/:id/disable", h.webhooks.Disable)
	h.step(write, "/:id/test", h.webhooks.Test)
	h.step(write, "/:id/deliveries/:delivery/retry", h.webhooks.RetryDelivery)
	write.POST("/:id/replays", h.Answer(accept.RefuseKey), h.Answer(h.bodies.others.Limit), h.Answer(h.webhooks.Replay))
}
