package environment

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// EmailTemplate is a template of a 2 KB request to send an email, from which copies with different
// recipients are made without encoding each.
type EmailTemplate struct {
	parts [][]byte // of the JSON; the serial number is between two of them
}

// serialDigits is the fixed length of serial numbers, so that all copies have the same length.
const serialDigits = 12

// Placeholder is replaced by the serial number.
const Placeholder = "000000000042"

// EmailHTML is a typical invoice with tables, links and styles, all of which the HTML check has to
// examine.
var EmailHTML = `<html><body style="font-family: sans-serif; color: #222"><h1>Sua fatura de março</h1>` +
	`<p>Olá, <b>João Assunção</b>: a fatura do cliente ` + Placeholder + ` já está disponível.</p>` +
	`<table width="600" cellpadding="4" style="border-collapse: collapse">` +
	strings.Repeat(`<tr><td style="border-bottom: 1px solid #ddd">Serviço de manutenção mensal</td><td align="right">R$ 129,90</td></tr>`, 6) +
	`</table><p><a href="https://cobranca.bancada.example/faturas/` + Placeholder + `" title="Abrir a fatura">Ver a fatura</a></p></body></html>`

// NewEmailTemplate encodes the email.
func NewEmailTemplate() (EmailTemplate, error) {
	to := Address(Placeholder)
	text, err := json.Marshal(map[string]any{
		"to": to, "subject": "Sua fatura está disponível", "html": EmailHTML,
		"recipient": map[string]any{"externalId": "cliente-" + Placeholder, "nome": "João Assunção", "email": to},
		"tags":      []string{"fatura"},
	})
	if err != nil {
		return EmailTemplate{}, fmt.Errorf("encode email: %w", err)
	}
	var l EmailTemplate
	for part := range strings.SplitSeq(string(text), Placeholder) {
		l.parts = append(l.parts, []byte(part))
	}
	return l, nil
}

// Address is the recipient of the email with this serial.
func Address(serial string) string { return "cliente" + serial + "@cliente.example" }

// Length returns the length of each copy.
func (l EmailTemplate) Length() int {
	n := (len(l.parts) - 1) * serialDigits
	for _, part := range l.parts {
		n += len(part)
	}
	return n
}

// Append appends the copy with that serial number to dst.
func (l EmailTemplate) Append(dst []byte, serial int64) []byte {
	for i, part := range l.parts {
		if i > 0 {
			dst = AppendSerial(dst, serial)
		}
		dst = append(dst, part...)
	}
	return dst
}

// AppendSerial appends a serial with all its digits.
func AppendSerial(dst []byte, serial int64) []byte {
	digits := strconv.AppendInt(make([]byte, 0, 20), serial, 10)
	for range serialDigits - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// Request returns a function that appends the whole HTTP request of a copy, with its own
// Idempotency-Key.
func (l EmailTemplate) Request(key string) func(dst []byte, serial int64) []byte {
	head := fmt.Sprintf("POST /v1/email/send HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nIdempotency-Key: fatura-", key, l.Length())
	return func(dst []byte, serial int64) []byte {
		dst = AppendSerial(append(dst, head...), serial)
		return l.Append(append(dst, "\r\n\r\n"...), serial)
	}
}
