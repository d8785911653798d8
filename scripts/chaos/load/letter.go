package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Domain is where everybody that the run writes to lives, so that an address in clear
// can be found wherever it should not be.
const Domain = "cliente-caos.example"

// FindAddress says where text has an address of the run: its domain's first and following
// offset; nil if nowhere.
func FindAddress(text []byte) []int {
	if at := bytes.Index(text, []byte("@"+Domain)); at >= 0 {
		return []int{at, at + len("@"+Domain)}
	}
	return nil
}

// letter is one email to be handed over.
type letter struct {
	serial int
	key    string // the tenant's
	body   []byte

	atMostOnce bool
	twin       bool // handed over twice at the same time
	cancel     bool // withdrawn as soon as it is accepted
	suppress   bool // to an address that the tenant has suppressed
}

// Address is whom the letter of that serial goes to, and External who that is.
func Address(serial int) string  { return fmt.Sprintf("pessoa%d@%s", serial, Domain) }
func external(serial int) string { return fmt.Sprintf("carta-%d", serial) }

func newLetter(random *rand.Rand, serial int, key string, end time.Time) letter {
	l := letter{serial: serial, key: key}
	recipient := map[string]any{"externalId": external(serial), "nome": "João Assunção", "email": Address(serial)}
	request := map[string]any{
		"to": Address(serial), "subject": fmt.Sprintf("Sua fatura nº %d está disponível", serial),
		"html":      "<p>Olá, <b>João</b>: a fatura já saiu.</p>" + padding(random),
		"recipient": recipient,
	}
	switch pick := random.IntN(100); {
	case pick < 10:
		request["delivery"], l.atMostOnce = "at_most_once", true
	case pick < 15:
		request["cc"] = []string{fmt.Sprintf("copia%d@%s", serial, Domain)}
	case pick < 20: // due within the run
		request["sendAt"] = scheduled(random, end).Format(time.RFC3339Nano)
	case pick < 22: // withdrawn long before it is due
		request["sendAt"], l.cancel = time.Now().Add(time.Hour).Format(time.RFC3339), true
	case pick < 24: // withdrawn while it may be on its way
		l.cancel = true
	case pick < 28:
		request["priority"] = 1 + random.IntN(10)
	case pick < 31:
		recipient["cpfCnpj"] = written(serial)
	case pick < 32:
		l.suppress = true
	}
	l.twin = random.IntN(50) == 0
	l.body, _ = json.Marshal(request) // maps of strings and numbers always can
	return l
}

// scheduled is a time in the next seconds, before the end of the run.
func scheduled(random *rand.Rand, end time.Time) time.Time {
	left := min(max(time.Until(end), time.Second), 15*time.Second)
	return time.Now().Add(time.Duration(random.Int64N(int64(left))))
}

// padding makes one letter in forty a large one.
func padding(random *rand.Rand) string {
	if random.IntN(40) > 0 {
		return ""
	}
	return strings.Repeat("<p>Linha de detalhe da fatura, com acentuação.</p>", 1+random.IntN(600))
}
