package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Domain is the domain of all addresses of the run, by which leaked addresses are found.
const Domain = "cliente-caos.example"

// FindAddress returns the start and end of the domain of an address of the run in text; nil if
// there is none.
func FindAddress(text []byte) []int {
	if at := bytes.Index(text, []byte("@"+Domain)); at >= 0 {
		return []int{at, at + len("@"+Domain)}
	}
	return nil
}

// email is one email to be submitted.
type email struct {
	serial  int
	key     string // the tenant's
	request map[string]any
	content Content
	files   []file // attached by their ids

	invalid    bool // the api refuses it
	atMostOnce bool
	concurrent bool // submitted twice at the same time
	cancel     bool // withdrawn right after its acceptance
	suppress   bool // to an address that the tenant has suppressed
}

// Address is the recipient's address of the email with that serial.
func Address(serial int) string  { return fmt.Sprintf("pessoa%d@%s", serial, Domain) }
func external(serial int) string { return fmt.Sprintf("carta-%d", serial) }

// accepted returns the record of the email's acceptance.
func (e *email) accepted(id uuid.UUID) Accepted {
	return Accepted{Serial: e.serial, ID: id, AtMostOnce: e.atMostOnce}
}

// emailTo returns an email to the recipient.
func emailTo(serial int, key string, recipient map[string]any, subject, html string) email {
	e := email{serial: serial, key: key, request: map[string]any{"to": Address(serial), "recipient": recipient}}
	e.write(subject, html)
	return e
}

func (l *Load) newEmail(random *rand.Rand, serial int) email {
	recipient := map[string]any{"externalId": external(serial), "nome": "João Assunção", "email": Address(serial)}
	e := emailTo(serial, l.params.Keys[serial%len(l.params.Keys)], recipient, fmt.Sprintf("Sua fatura nº %d está disponível", serial),
		"<p>Olá, <b>João</b>: a fatura já saiu.</p>"+padding(random))
	switch pick := random.IntN(100); {
	case pick < 10:
		e.request["delivery"], e.atMostOnce = "at_most_once", true
	case pick < 15:
		e.content.CC = []string{fmt.Sprintf("copia%d@%s", serial, Domain)}
		e.request["cc"] = e.content.CC
	case pick < 20: // due within the run
		e.schedule(scheduled(random, l.end))
	case pick < 22: // withdrawn long before it is due
		e.schedule(time.Now().Add(time.Hour))
		e.cancel = true
	case pick < 24: // withdrawn while it may be in flight
		e.cancel = true
	case pick < 28:
		e.request["priority"] = 1 + random.IntN(10)
	case pick < 31:
		recipient["cpfCnpj"] = written(serial)
	case pick < 32:
		e.suppress = true
	case pick < 42:
		e.useTemplate(random)
	}
	e.concurrent = random.IntN(50) == 0
	return e
}

func (e *email) schedule(at time.Time) {
	e.request["sendAt"], e.content.SendAt = at.Format(time.RFC3339Nano), at
}

// scheduled returns a time in the next seconds, before the end of the run.
func scheduled(random *rand.Rand, end time.Time) time.Time {
	left := min(max(time.Until(end), time.Second), 15*time.Second)
	return time.Now().Add(time.Duration(random.Int64N(int64(left))))
}

// padding makes one email in forty a large one.
func padding(random *rand.Rand) string {
	if random.IntN(40) > 0 {
		return ""
	}
	return strings.Repeat("<p>Linha de detalhe da fatura, com acentuação.</p>", 1+random.IntN(600))
}
