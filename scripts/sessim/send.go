package sessim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// maxMessage is the maximum message size of SES v2. The simulator measures the request body, which
// differs from the MIME message by a few per cent.
const maxMessage = 40 << 20

// sendEmailInput is the body of SendEmail, with the fields that the simulator reads.
type sendEmailInput struct {
	FromEmailAddress string
	Destination      struct {
		ToAddresses  []string
		CcAddresses  []string
		BccAddresses []string
	}
	ReplyToAddresses     []string
	ConfigurationSetName string
	EmailTags            []Pair
	Content              struct {
		Simple   *simpleContent
		Raw      *struct{}
		Template *struct{}
	}
}

type simpleContent struct {
	Subject *content
	Body    struct {
		Text *content
		Html *content
	}
	Headers     []Pair
	Attachments []sentAttachment
}

type content struct {
	Data    *string
	Charset string
}

// submission is one SendEmail request after all checks that need no state of the server.
type submission struct {
	Mail
	received time.Time
	remote   string
	signed   bool
	problem  string       // the message of a BadRequestException; empty if there is none
	asked    addressFault // fault requested by its recipients

	htmlSHA256 string
}

func (s *Server) sendEmail(w http.ResponseWriter, r *http.Request) {
	sub := &submission{
		received: s.cfg.Clock(),
		remote:   r.RemoteAddr,
		signed:   isSigned(r),
	}
	problem, err := s.read(sub, w, r)
	if err != nil {
		// An incomplete request, which SES would ignore too. The client has disconnected.
		s.countBroken()
		panic(http.ErrAbortHandler)
	}
	sub.problem = problem
	if problem == "" {
		sub.asked, sub.problem = s.faultByAddress(&sub.Mail)
	}
	v := s.decide(sub)
	s.publishEventsOf(r, &sub.Mail, v.events, v.about)
	s.deliver(w, r, v)
}

// read reads the request's body into sub. It returns a problem of the request, or an error if it is
// incomplete.
func (s *Server) read(sub *submission, w http.ResponseWriter, r *http.Request) (problem string, err error) {
	buf, _ := s.bodies.Get().(*bytes.Buffer)
	if buf == nil {
		buf = new(bytes.Buffer)
	}
	defer func() {
		if buf.Cap() <= 1<<20 { // a large buffer must not stay in the pool for ever
			buf.Reset()
			s.bodies.Put(buf)
		}
	}()

	// Up to twice the limit is read, so that the refusal reaches a client that writes its whole
	// body before it reads.
	_, err = buf.ReadFrom(http.MaxBytesReader(w, r.Body, 2*maxMessage))
	if tooLarge := (*http.MaxBytesError)(nil); err != nil && !errors.As(err, &tooLarge) {
		return "", err
	}
	if buf.Len() > maxMessage {
		return fmt.Sprintf("Message length is more than %d bytes long: '%d'.", maxMessage, buf.Len()), nil
	}

	var in sendEmailInput
	if err := json.Unmarshal(buf.Bytes(), &in); err != nil {
		return "Could not parse request body into json: " + err.Error(), nil
	}
	in.fill(&sub.Mail)
	if sub.HTML != "" {
		sub.htmlSHA256 = digest([]byte(sub.HTML))
	}
	return in.problem(), nil
}

// fill copies the request's fields into m, valid or not: the ledger shows refused mails too.
func (in *sendEmailInput) fill(m *Mail) {
	m.From = in.FromEmailAddress
	if m.To = in.Destination.ToAddresses; m.To == nil {
		m.To = []string{} // "to" is always a list in our JSON
	}
	m.CC = in.Destination.CcAddresses
	m.BCC = in.Destination.BccAddresses
	m.ReplyTo = in.ReplyToAddresses
	m.ConfigurationSet = in.ConfigurationSetName
	m.Tags = in.EmailTags
	for _, tag := range in.EmailTags {
		switch tag.Name {
		case "outbox_id":
			m.OutboxID = tag.Value
		case "attempt_id":
			m.AttemptID = tag.Value
		case "company_id":
			m.CompanyID = tag.Value
		}
	}
	if c := in.Content.Simple; c != nil {
		m.Subject = c.Subject.asSent()
		m.Text = c.Body.Text.asSent()
		m.HTML = c.Body.Html.asSent()
		m.Headers = c.Headers
		for i := range c.Attachments {
			m.Attachments = append(m.Attachments, c.Attachments[i].arrived())
		}
	}
}
