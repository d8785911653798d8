package fieldhint_test

import (
	"strings"
	"testing"

	"email-gateway/api/internal/fieldhint"
)

func send() fieldhint.Request {
	return fieldhint.Request{Noun: "field", Known: []string{
		"to", "cc", "bcc", "subject", "html", "text", "replyTo", "from", "headers", "tags", "recipient", "recipient.recipientId", "recipient.externalId",
		"recipient.cpfCnpj", "recipient.cpfCnpjHash", "recipient.razaoSocial", "recipient.nome", "recipient.email", "attachments", "priority", "sendAt", "delivery", "aggregate",
		"aggregate.type", "aggregate.id", "aggregate.eventType",
	}}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	list := fieldhint.Request{Noun: "parameter", Known: []string{"cursor", "limit", "status", "recipient", "tag", "createdAfter", "createdBefore", "externalId"}}
	many := fieldhint.Request{Noun: "field", Known: []string{"recipients", "recipients[].externalId", "recipients[].nome", "recipients[].email"}}
	for _, tt := range []struct {
		request  fieldhint.Request
		in, name string
		want     string
	}{
		// Other spellings.
		{send(), "", "reply_to", "is not a field; replyTo is"},
		{send(), "", "Reply-To", "is not a field; replyTo is"},
		{send(), "", "SENDAT", "is not a field; sendAt is"},
		{send(), "recipient", "external_id", "is not a field; recipient.externalId is"},
		{send(), "", "recipient_email", "is not a field here; recipient.email is"},
		{send(), "", "subjet", "is not a field; do you mean subject?"},
		{send(), "", "prioritty", "is not a field; do you mean priority?"},
		// Another place in the request.
		{send(), "", "nome", "is not a field here; recipient.nome is"},
		{send(), "recipient", "to", "is not a field here; to is"},
		{many, "recipients[]", "name", "is not a field; recipients[].nome is"},
		// Names in other APIs.
		{send(), "", "body", "is not a field; html is"},
		{send(), "", "email", "is not a field; to is, which takes one address without a name"},
		{send(), "", "from_name", `is not a field; from is, which takes name and address in one value: "Acme <billing@acme.example>"`},
		{send(), "", "ReplyToAddresses", "is not a field; replyTo is"},
		{send(), "", "Destination", "is not a field; to is, which takes one address without a name"},
		{send(), "", "o:deliverytime", "is not a field; sendAt is"},
		{send(), "", "categories", "is not a field; tags is"},
		{send(), "recipient", "name", "is not a field; recipient.nome is"},
		{send(), "recipient", "cpf", "is not a field; recipient.cpfCnpj is"},
		{send(), "", "customer", "is not a field; recipient is"},
		{list, "", "page_size", "is not a parameter; limit is"},
		{list, "", "since", "is not a parameter; createdAfter is"},
		// Unsupported features.
		{send(), "", "template", "is not supported: send the finished html"},
		{send(), "", "template_id", "is not supported: send the finished html"},
		{send(), "", "dynamic_template_data", "is not supported: send the finished html"},
		{send(), "", "inline_images", "is not a field; attachments is"},
		{send(), "", "o:tracking", "is not supported: tracking"},
		{send(), "", "ConfigurationSetName", "is not supported: tracking"},
		{send(), "", "ip_pool_name", "is not supported: leave it out"},
		// Elsewhere in the API.
		{send(), "", "idempotencyKey", "is not a field here: it is the header Idempotency-Key"},
		{send(), "", "requestId", "is not a field here: it is the header X-Request-Id"},
		{send(), "", "dryRun", "is not a field here: it is a part of POST /mailings"},
		{send(), "", "companyId", "is not a field here: the API key identifies"},
		{send(), "", "status", "is not a field here: leave it out: the gateway sets it"},
		// Nothing similar.
		{send(), "aggregate", "zzz", "is not a field of this request, which has aggregate.type, aggregate.id, aggregate.eventType"},
		{list, "", "attachments", "is not a parameter of this request, which has cursor, limit"},
		{send(), "", "", "is not a field of this request"},
		{send(), "", strings.Repeat("x", 100_000), "is not a field of this request"},
	} {
		if got := tt.request.Unknown(tt.in, tt.name); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%.40s in %q: %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// Each field that SES, SendGrid, Mailgun, Postmark and Resend have for one email gets a specific hint.
func TestUnknown_OtherAPIs(t *testing.T) {
	t.Parallel()
	for _, name := range strings.Fields(`
		FromEmailAddress FromEmailAddressIdentityArn Destination ReplyToAddresses FeedbackForwardingEmailAddress Content EmailTags ConfigurationSetName EndpointId ListManagementOptions
		Source Message ReturnPath SourceArn Template TemplateArn TemplateData
		personalizations reply_to reply_to_list content attachments template_id sections headers_ categories custom_args send_at batch_id asm ip_pool_name mail_settings tracking_settings substitutions dynamic_template_data
		o:tag o:dkim o:deliverytime o:testmode o:tracking o:tracking-clicks o:require-tls h:X-Mailgun-Variables t:version t:variables recipient-variables amp-html attachment inline template
		From ReplyTo HtmlBody TextBody Tag TrackOpens TrackLinks Metadata MessageStream TemplateAlias TemplateModel
		scheduled_at idempotency_key template_data body from_name from_email sender to_name variables merge_vars unsubscribe_url webhook`) {
		if got := send().Unknown("", name); strings.Contains(got, "which has to, cc") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
