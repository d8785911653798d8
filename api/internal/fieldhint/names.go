package fieldhint

import "strings"

// aliases maps names of other APIs (SES, SendGrid, Mailgun, Postmark, Resend) and Portuguese
// names to our fields, the most likely first.
var aliases = invert([][2]string{
	{"html", "body bodyhtml htmlbody htmlcontent htmlpart content message messagehtml corpo mensagem conteudo"},
	{"text", "plain plaintext textbody bodytext textcontent textpart texto"},
	{"to", "toaddress toaddresses toemail toemails recipients recipientaddress recipientemail destination destinations destinatario destinatarios para rcpt rcptto email emailaddress address"},
	{"cc", "ccaddress ccaddresses copia"},
	{"bcc", "bccaddress bccaddresses cco copiaoculta"},
	{"subject", "title subjectline assunto titulo"},
	{"from", "sender senderaddress senderemail sendername fromaddress fromemail fromemailaddress fromname source remetente de"},
	{"replyTo", "replytoaddress replytoaddresses replytoemail replytolist responderpara"},
	{"sendAt", "at when date schedule scheduledat scheduledfor scheduletime scheduledtime deliverytime odeliverytime deliverat sendon sendtime agendadopara"},
	{"tags", "tag categories category labels label otag emailtags messagetags keywords"},
	{"headers", "header customheaders messageheaders"},
	{"priority", "importance prioridade"},
	{"delivery", "deliverymode deliverysemantics"},
	{"recipient.nome", "name fullname toname recipientname displayname firstname nomecompleto"},
	{"nome", "name fullname displayname firstname nomecompleto"},
	{"recipient.razaoSocial", "company companyname legalname empresa"},
	{"razaoSocial", "company companyname legalname empresa"},
	{"recipient.cpfCnpj", "cpf cnpj taxid document documento cpfoucnpj"},
	{"cpfCnpj", "cpf cnpj taxid document documento cpfoucnpj"},
	{"recipient.cpfCnpjHash", "cpfhash cnpjhash taxidhash documenthash"},
	{"cpfCnpjHash", "cpfhash cnpjhash taxidhash documenthash"},
	{"recipient.externalId", "customerid clientid contactid userid codigo idexterno reference externalreference"},
	{"externalId", "customerid clientid contactid userid codigo idexterno reference externalreference"},
	{"recipient.recipientId", "personid"},
	{"recipient", "customer client cliente contact user person pessoa"},
	{"recipients", "people contacts users customers data items"},
	{"email", "to address emailaddress mail"},
	{"address", "to email emailaddress recipient mail"},
	{"aggregate.eventType", "event eventname"},
	{"attachments", "attachment files file anexo anexos inline inlineattachments inlineimages images"},
	{"file", "csv csvfile upload arquivo planilha"},
	{"name", "filename title nome"},
	{"dryRun", "validateonly"},
	{"status", "state situacao"},
	{"limit", "pagesize perpage size count max maxresults"},
	{"cursor", "page offset after startingafter nextcursor nexttoken pagetoken"},
	{"createdAfter", "since from start startdate begin desde"},
	{"createdBefore", "until to end enddate before ate"},
	{"tag", "tags category label"},
})

// remarks are appended if the name of a field does not show its format.
var remarks = map[string]string{
	"from": `, which takes name and address in one value: "Acme <billing@acme.example>"`,
	"to":   ", which takes one address without a name",
}

// finishedHTML and ownTemplate explain templates, which only mailings have.
const (
	finishedHTML = "send the finished html; POST /mailings fills in {{column}} from a CSV file"
	ownTemplate  = "html, text and subject are the template, in which {{column}} is a column of the file"
)

// unsupported explains what to do instead of features of other APIs.
var unsupported = expandNames(map[string]string{
	finishedHTML: "sections template templateid templatename templatealias templatemodel templatedata templatearn templatevariables " +
		"defaulttemplatedata dynamictemplatedata personalizations substitutions mergevars mergefields globalmergevars recipientvariables variables params placeholders ttemplate ttext tversion tvariables hxmailgunvariables",
	"tracking of opens and clicks is set by the operator's SES configuration set": "tracking trackopens trackclicks tracklinks trackingsettings otracking otrackingopens otrackingclicks " +
		"opentracking clicktracking configurationset configurationsetname googleanalytics",
	"use tags (up to 5) or aggregate to store data with an email": "metadata customargs customvariables uniqueargs data context extra properties attributes",
	"GET /v1/email/{id} shows the status of an email":             "webhook webhookurl callback callbackurl notifyurl feedbackforwardingemailaddress",
	"leave it out: it is set by the operator's SES account": "ippool ippoolname pool subaccount messagestream stream asm mailsettings sandbox sandboxmode testmode otestmode dkim odkim " +
		"domain sendingdomain sourcearn fromarn fromemailaddressidentityarn returnpath returnpatharn bouncedomain bounceaddress endpointid async batchid requiretls orequiretls",
	"send html and text":                                         "amp amphtml mjml markdown raw mime rawmessage",
	"leave it out: bodies are UTF-8":                             "charset encoding locale language lang",
	"sendAt is a timestamp with its zone":                        "timezone tz delay delayseconds sendafter",
	"an email that was not sent 24 hours after sendAt expires":   "ttl expiresat expiresin expiration deadline validity",
	"mailings have an unsubscribe link, single emails have none": "unsubscribe unsubscribeurl unsubscribegroup listunsubscribe listmanagementoptions",
})

// otherLocations says where other names of the API belong.
var otherLocations = expandNames(map[string]string{
	"it is the header Idempotency-Key":                       "idempotencykey",
	"it is the header X-Request-Id":                          "requestid xrequestid correlationid traceid",
	"the API key identifies the company":                     "companyid tenant tenantid account accountid",
	"send the API key as Authorization: Bearer or X-API-Key": "apikey key token accesstoken authorization",
	"it is a part of POST /mailings":                         "dryrun test start file delimiter encoding",
	"it belongs to POST /v1/suppressions":                    "reason",
	"it is for GET /v1/emails":                               "limit cursor createdafter createdbefore",
	"use aggregate, with type, id and eventType":             "aggregatetype aggregateid eventtype",
	"leave it out: the gateway sets it": "id outboxid jobid mailingid messageid sesmessageid createdat updatedat sentat processedat deliveredat expiresat attempts " +
		"throttles events lasterror possibleduplicate outcomeunknown status code title detail errors",
})

// invert returns the fields for each name, in the order of the table.
func invert(table [][2]string) map[string][]string {
	all := make(map[string][]string)
	for _, line := range table {
		for name := range strings.FieldsSeq(line[1]) {
			all[name] = append(all[name], line[0])
		}
	}
	return all
}

// expandNames returns the text for each name.
func expandNames(table map[string]string) map[string]string {
	all := make(map[string]string)
	for text, names := range table {
		for name := range strings.FieldsSeq(names) {
			all[name] = text
		}
	}
	return all
}
