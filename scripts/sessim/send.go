package sessim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"email-gateway/scripts/sessim/sesmail"
)

// maxMessage is the maximum message size of SES v2. The simulator measures the request body, which
// differs from the MIME message by a few per cent.
const maxMessage = 40 << 20

// submission is one SendEmail request after all checks that need no state of the server.
type submission struct {
	sesmail.Mail
	received time.Time
	remote   string
	signed   bool

	accessKey string       // the id of the key that signed it
	problem   string       // the message of a BadRequestException; empty if there is none
	asked     addressFault // fault requested by its recipients

	htmlSHA256 string
}

func (s *Server) sendEmail(w http.ResponseWriter, r *http.Request) {
	sub := &submission{
		received: s.cfg.Clock(),
		remote:   r.RemoteAddr,
		signed:   isSigned(r),

		accessKey: accessKey(r),
	}
	problem, err := s.read(sub, w, r)
	if err != nil {
		// An incomplete request, which SES would ignore too. The client has disconnected.
		s.countBroken()
		panic(http.ErrAbortHandler)
	}
	sub.problem = problem
	if problem == "" {
		sub.asked, sub.problem = faultByAddress(s.faults, &sub.Mail)
	}
	v := s.decide(sub)
	s.publishEventsOf(r, &sub.Mail, v.events, v.about)
	responder{s.cfg.Clock, s.closing}.deliver(w, r, v)
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

	var in sesmail.Input
	if err := json.Unmarshal(buf.Bytes(), &in); err != nil {
		return "Could not parse request body into json: " + err.Error(), nil
	}
	in.Fill(&sub.Mail)
	if sub.HTML != "" {
		sub.htmlSHA256 = sesmail.Digest([]byte(sub.HTML))
	}
	return in.Problem(), nil
}
