package ses_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"email-gateway/worker/internal/provider"
	"email-gateway/worker/internal/provider/providertest"
	"email-gateway/worker/internal/provider/ses"
)

// TestContract runs the suite for providers.
func TestContract(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) (provider.Sender, providertest.Backend) {
		b := newBackend(t)
		return newSender(t, ses.Config{Endpoint: b.server.URL, Concurrency: 8}), b
	})
}

// request is SES's JSON of an email, declared independently of the SDK, whose types would only
// agree with themselves.
type request struct {
	ConfigurationSetName string
	FromEmailAddress     string
	Destination          struct{ ToAddresses, CcAddresses, BccAddresses []string }
	ReplyToAddresses     []string
	Content              struct {
		Simple struct {
			Subject content
			Body    struct{ Html, Text *content }
			Headers []pair
		}
	}
	EmailTags []pair
}

type (
	content struct{ Data, Charset string }
	pair    struct{ Name, Value string }
)

func (c *content) text() string {
	if c == nil {
		return ""
	}
	if c.Charset != "UTF-8" {
		return "charset " + c.Charset // SES would read it as ASCII
	}
	return c.Data
}

func (r request) message() provider.Message {
	tags, headers := make(map[string]string), make(map[string]string)
	for _, tag := range r.EmailTags {
		tags[tag.Name] = tag.Value
	}
	for _, header := range r.Content.Simple.Headers {
		headers[header.Name] = header.Value
	}
	m := provider.Message{
		From: r.FromEmailAddress, CC: r.Destination.CcAddresses, BCC: r.Destination.BccAddresses,
		Subject: r.Content.Simple.Subject.text(), HTML: r.Content.Simple.Body.Html.text(), Text: r.Content.Simple.Body.Text.text(),
		Headers: headers, OutboxID: tags["outbox_id"], AttemptID: tags["attempt_id"], CompanyID: tags["company_id"],
		InstallationID: tags["installation_id"],
	}
	if len(r.Destination.ToAddresses) == 1 {
		m.To = r.Destination.ToAddresses[0]
	}
	if len(r.ReplyToAddresses) == 1 {
		m.ReplyTo = r.ReplyToAddresses[0]
	}
	return m
}

// backend is an SES under the suite's control.
type backend struct {
	server *httptest.Server

	mu       sync.Mutex
	does     providertest.Behaviour
	requests []request
	headers  []http.Header
}

func newBackend(t *testing.T) *backend {
	b := new(backend)
	b.server = httptest.NewServer(b)
	t.Cleanup(b.server.Close)
	return b
}

func (b *backend) Behave(does providertest.Behaviour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.does = does
}

func (b *backend) Received() []provider.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []provider.Message
	for _, r := range b.requests {
		list = append(list, r.message())
	}
	return list
}

func (b *backend) Disappear() { b.server.Close() }

// last returns the latest request and its HTTP headers.
func (b *backend) last() (request, http.Header) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests[len(b.requests)-1], b.headers[len(b.headers)-1]
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Read to the end: only then does the server notice that its client has gone.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var got request
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		refuse(w, 400, "SerializationException", err.Error())
		return
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v2/email/outbound-emails" {
		http.NotFound(w, r)
		return
	}
	b.mu.Lock()
	b.requests, b.headers = append(b.requests, got), append(b.headers, r.Header)
	does := b.does
	b.mu.Unlock()

	switch does {
	case providertest.Accept:
		io.WriteString(w, `{"MessageId":"0100019a-0000"}`)
	case providertest.Refuse:
		refuse(w, 400, "MessageRejected", "Address blacklisted.")
	case providertest.Throttle:
		refuse(w, 429, "TooManyRequestsException", "Maximum sending rate exceeded.")
	case providertest.DenyAccess:
		refuse(w, 403, "AccessDeniedException", "Not authorized to perform ses:SendEmail.")
	case providertest.Garble:
		io.WriteString(w, `{"MessageId":"0100`)
	case providertest.Cut:
		panic(http.ErrAbortHandler) // the server's way to close without a response
	case providertest.Hang:
		<-r.Context().Done()
	}
}

// keys returns the header's matching names.
func keys(h http.Header, match func(string) bool) []string {
	var list []string
	for name := range h {
		if match(name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}
