package httpapi

import (
	"maps"
	"slices"
	"strings"
	"time"

	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// draft is a request on its way to an email: what is wrong with it so far, and what
// was worked out.
type draft struct {
	request *sendRequest
	faults  faults
	now     time.Time

	sender string    // From, as it is stored
	sendAt time.Time // zero = now
	taxID  string    // bare; "" = none
}

// normalize brings the addresses into stored form. The rules have looked at them.
func (d *draft) normalize() {
	ascii := func(address *string) {
		if normal, err := asciiAddress(*address); err == nil {
			*address = normal
		}
	}
	r := d.request
	ascii(&r.To)
	for _, list := range [][]string{r.CC, r.BCC} {
		for i := range list {
			ascii(&list[i])
		}
	}
	if r.ReplyTo != nil {
		ascii(r.ReplyTo)
	}
	if r.Recipient != nil {
		ascii(&r.Recipient.Email)
	}
}

// checkSender: see senderOf.
func (d *draft) checkSender(caller *store.Caller) {
	d.sender = caller.DefaultFrom
	if d.request.From == nil || d.faults.has("from") {
		return
	}
	d.sender = senderOf(caller, *d.request.From, &d.faults)
}

// checkRecipient: the fields of the recipient as they stand to each other.
func (d *draft) checkRecipient() {
	r := d.request.Recipient
	if r == nil || d.faults.has("recipient") {
		return
	}
	if !d.faults.has("to") && !d.faults.has("recipient.email") && !email.SameAddress(r.Email, d.request.To) {
		d.faults.add("recipient.email", "MISMATCH", "must be equal to to")
	}
	if !r.identified() && !d.anyFault("recipient.recipientId", "recipient.externalId", "recipient.cpfCnpj", "recipient.cpfCnpjHash") {
		d.faults.add("recipient", "REQUIRED", "needs recipientId, externalId, cpfCnpj or cpfCnpjHash")
	}
	d.taxID = taxIDOf(r.CPFCNPJ, r.CPFCNPJHash, "recipient.", &d.faults)
}

func (d *draft) anyFault(fields ...string) bool { return slices.ContainsFunc(fields, d.faults.has) }

// checkHeaders: JSON tells x-foo from X-Foo, mail does not.
func (d *draft) checkHeaders() {
	seen := make(map[string]bool, len(d.request.Headers))
	for _, name := range slices.Sorted(maps.Keys(d.request.Headers)) {
		lower := strings.ToLower(name)
		if seen[lower] {
			d.faults.add("headers."+name, strictjson.CodeDuplicateField, "stands here twice, in different case")
		}
		seen[lower] = true
	}
}

// checkSendAt: see sendAtOf.
func (d *draft) checkSendAt() {
	if d.request.SendAt != nil && !d.faults.has("sendAt") {
		d.sendAt = sendAtOf(*d.request.SendAt, d.now, &d.faults)
	}
}
