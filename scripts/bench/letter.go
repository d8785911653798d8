package bench

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// letter is a request of about 2 KB to send an email, of which any number of copies can be
// made that differ in whom they go to, without encoding each.
type letter struct {
	parts [][]byte // of the JSON; between two of them stands the serial number
}

// serialDigits is how long every serial number is, so that every copy has the same length.
const serialDigits = 12

// placeholder stands for the serial number where the JSON is made.
const placeholder = "000000000042"

// letterHTML is what an invoice looks like: tables, links and styles, all of which the
// check of the HTML has to look at.
var letterHTML = `<html><body style="font-family: sans-serif; color: #222"><h1>Sua fatura de março</h1>` +
	`<p>Olá, <b>João Assunção</b>: a fatura do cliente ` + placeholder + ` já está disponível.</p>` +
	`<table width="600" cellpadding="4" style="border-collapse: collapse">` +
	strings.Repeat(`<tr><td style="border-bottom: 1px solid #ddd">Serviço de manutenção mensal</td><td align="right">R$ 129,90</td></tr>`, 6) +
	`</table><p><a href="https://cobranca.bancada.example/faturas/` + placeholder + `" title="Abrir a fatura">Ver a fatura</a></p></body></html>`

func newLetter() (letter, error) {
	to := address(placeholder)
	text, err := json.Marshal(map[string]any{
		"to": to, "subject": "Sua fatura está disponível", "html": letterHTML,
		"recipient": map[string]any{"externalId": "cliente-" + placeholder, "nome": "João Assunção", "email": to},
		"tags":      []string{"fatura"},
	})
	if err != nil {
		return letter{}, fmt.Errorf("encode letter: %w", err)
	}
	var l letter
	for part := range strings.SplitSeq(string(text), placeholder) {
		l.parts = append(l.parts, []byte(part))
	}
	return l, nil
}

func address(serial string) string { return "cliente" + serial + "@cliente.example" }

// length is that of each copy.
func (l letter) length() int {
	n := (len(l.parts) - 1) * serialDigits
	for _, part := range l.parts {
		n += len(part)
	}
	return n
}

// append writes the copy with that serial number.
func (l letter) append(dst []byte, serial int64) []byte {
	for i, part := range l.parts {
		if i > 0 {
			dst = appendSerial(dst, serial)
		}
		dst = append(dst, part...)
	}
	return dst
}

func appendSerial(dst []byte, serial int64) []byte {
	digits := strconv.AppendInt(make([]byte, 0, 20), serial, 10)
	for range serialDigits - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// request is the whole HTTP request to send that copy, with an Idempotency-Key of its own.
func (l letter) request(key string) func(dst []byte, serial int64) []byte {
	head := fmt.Sprintf("POST /v1/email/send HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: fatura-", key, l.length())
	return func(dst []byte, serial int64) []byte {
		dst = appendSerial(append(dst, head...), serial)
		return l.append(append(dst, "\r\n\r\n"...), serial)
	}
}
