package mailings

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/httpapi/accept"
	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/draft"
	"email-gateway/shared/email"
	"email-gateway/shared/mailbox"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/tenant"
)

// mailingRequest holds the form fields of POST /mailings without the file. Fields that the
// send request has too follow the same rules.
type mailingRequest struct {
	Subject  string   `json:"subject" validate:"line"`
	HTML     string   `json:"html"`
	Text     string   `json:"text"`
	Template string   `json:"template"` // the name of a stored template in place of the three
	Locale   string   `json:"templateLocale"`
	Version  string   `json:"templateVersion"`
	AutoText string   `json:"autoText,omitempty" validate:"omitempty,oneof=true false"`
	Name     string   `json:"name" validate:"line,max=255"`
	From     *string  `json:"from" validate:"omitnil,max=1000,mailbox"`
	ReplyTo  *string  `json:"replyTo" validate:"omitnil,address"`
	SendAt   *string  `json:"sendAt" validate:"omitnil,timestamp"`
	Tags     []string `json:"tags" validate:"max=5,dive,max=64,printable"`
	Delivery string   `json:"delivery" validate:"omitempty,oneof=at_least_once at_most_once"`
	DryRun   string   `json:"dryRun" validate:"omitempty,oneof=true false"`
	Test     []string `json:"test" validate:"max=10,dive,address"`
	Start    string   `json:"start" validate:"omitempty,oneof=true false"`
	Encoding string   `json:"encoding" validate:"encoding"`
	// Delimiter separates the fields of a row, if detection fails.
	Delimiter string `json:"delimiter" validate:"delimiter"`
	// EmptyFields says what to do with a row that leaves a template field empty.
	EmptyFields string `json:"emptyFields" validate:"omitempty,oneof=send reject"`
}

// attachmentsPart is the part with a JSON array of stored files.
type attachmentsPart struct {
	Attachments []draft.Attachment `json:"attachments" most:"10"`
}

func requestOf(f mailing.Form) mailingRequest {
	optional := func(name string) *string {
		if value, ok := f.Values[name]; ok {
			return &value
		}
		return nil
	}
	return mailingRequest{
		Subject: f.Values[mailing.PartSubject], HTML: f.Values[mailing.PartHTML], Text: f.Values[mailing.PartText],
		Template: f.Values[mailing.PartTemplate], Locale: f.Values[mailing.PartLocale], Version: f.Values[mailing.PartVersion],
		AutoText: f.Values[mailing.PartAutoText],
		Name:     f.Values[mailing.PartName], From: optional(mailing.PartFrom), ReplyTo: optional(mailing.PartReplyTo),
		SendAt: optional(mailing.PartSendAt), Tags: f.Lists[mailing.PartTags], Delivery: f.Values[mailing.PartDelivery],
		DryRun: f.Values[mailing.PartDryRun], Test: f.Lists[mailing.PartTest], Start: f.Values[mailing.PartStart],
		Encoding: f.Values[mailing.PartEncoding], Delimiter: f.Values[mailing.PartDelimiter],
		EmptyFields: f.Values[mailing.PartEmpty],
	}
}

// mailingDraft is a mailing being validated.
type mailingDraft struct {
	request mailingRequest
	faults  rules.Faults

	filename string
	reading  csvfile.Options
	sender   string
	version  int               // of the template; 0 = the published one
	sendAt   time.Time         // zero = now
	tests    []string          // distinct addresses in stored form
	preview  []mailing.Preview // of a dry run
	files    []draft.Attachment
	attached []file.Attachment
}

// newDraft validates the form fields.
func (h *Handlers) newDraft(caller *tenant.Caller, form mailing.Form, now time.Time) *mailingDraft {
	d := &mailingDraft{request: requestOf(form), sender: caller.DefaultFrom}
	d.faults = h.Rules.Check(&d.request, form.Faults)
	d.checkFile(form)
	d.checkContent()
	if d.request.From != nil && !d.faults.Has("from") {
		d.sender = draft.Sender(caller.DefaultFrom, caller.SenderDomains, *d.request.From, &d.faults)
	}
	if d.request.ReplyTo != nil {
		if ascii, err := mailbox.ASCII(*d.request.ReplyTo); err == nil {
			d.request.ReplyTo = &ascii
		}
	}
	if d.request.SendAt != nil && !d.faults.Has("sendAt") {
		d.sendAt = draft.SendAt(*d.request.SendAt, now, &d.faults)
	}
	d.checkTests()
	d.checkAttachments(h.attachmentsReader, form.Values[mailing.PartAttach])
	return d
}

// checkContent requires a subject and a body, or a template.
func (d *mailingDraft) checkContent() {
	r := &d.request
	for _, part := range []struct{ name, value string }{{mailing.PartLocale, r.Locale}, {mailing.PartVersion, r.Version}} {
		if part.value != "" && r.Template == "" {
			d.faults.Add(part.name, rules.CodeNotAllowed, "must not be given without a template")
		}
	}
	if r.Template == "" {
		if r.Subject == "" {
			d.faults.Add(mailing.PartSubject, rules.CodeRequired, "is required unless a template is given")
		}
		if r.HTML == "" && r.Text == "" {
			d.faults.Add(mailing.PartHTML, rules.CodeRequired, "is required unless text or a template is given")
		}
		return
	}
	for _, part := range []struct{ name, value string }{{mailing.PartSubject, r.Subject}, {mailing.PartHTML, r.HTML}, {mailing.PartText, r.Text}} {
		if part.value != "" {
			d.faults.Add(part.name, rules.CodeNotAllowed, "must not be given together with a template: the template defines it")
		}
	}
	if r.Version != "" {
		number, err := strconv.ParseInt(r.Version, 10, 32)
		if d.version = int(number); err != nil || number < 1 {
			d.faults.Add(mailing.PartVersion, rules.CodeOutOfRange, "must be a number of at least 1")
		}
	}
}

// checkAttachments reads and checks the attachments of all emails. They are stored files: a content would be in memory.
func (d *mailingDraft) checkAttachments(reader *strictjson.Reader[attachmentsPart], value string) {
	if value == "" {
		return
	}
	document, err := strictjson.ParseField(mailing.PartAttach, []byte(value))
	if err != nil {
		d.faults.Add(mailing.PartAttach, "INVALID_JSON", "must be a JSON array of objects with filename and fileId: "+err.Error())
		return
	}
	read, faults := reader.Read(document)
	for _, f := range faults {
		d.faults.Add(f.Field, f.Code, f.Message)
	}
	d.files = read.Attachments
	draft.CheckAttachments(d.files, &d.faults)
}

// checkFile requires a file with a name, or a name field. The name is stored in NFC: macOS writes é as e and a combining
// accent (NFD), and two forms of a name would be two mailings.
func (d *mailingDraft) checkFile(form mailing.Form) {
	if !form.HasFile {
		d.faults.Add(mailing.PartFile, "REQUIRED", "is required: the CSV file")
	}
	d.reading.Encoding, _ = csvfile.ParseEncoding(d.request.Encoding) // both were validated by the rules
	d.reading.Delimiter, _ = csvfile.ParseDelimiter(d.request.Delimiter)
	if d.filename = norm.NFC.String(d.request.Name); len([]rune(d.filename)) > mailing.MaxName { // some characters become longer
		d.faults.Add(mailing.PartName, rules.CodeTooLong, fmt.Sprintf("must have at most %d characters in Unicode's form NFC", mailing.MaxName))
	}
	if d.filename != "" || d.faults.Has(mailing.PartName) || !form.HasFile {
		return
	}
	d.filename = norm.NFC.String(form.Filename)
	switch {
	case d.filename == "":
		d.faults.Add(mailing.PartName, "REQUIRED", "is required if the part file has no filename")
	case email.HasControl(d.filename), len([]rune(d.filename)) > mailing.MaxName, !utf8.ValidString(d.filename):
		d.faults.Add(mailing.PartFile, "INVALID_FILENAME",
			fmt.Sprintf("must have a filename of 1 to %d UTF-8 characters without control characters; the part name can replace it", mailing.MaxName))
	}
}

// checkTests removes duplicate test addresses.
func (d *mailingDraft) checkTests() {
	seen := map[string]bool{}
	for _, address := range d.request.Test {
		ascii, err := mailbox.ASCII(address)
		if err != nil || seen[strings.ToLower(ascii)] {
			continue
		}
		seen[strings.ToLower(ascii)] = true
		d.tests = append(d.tests, ascii)
	}
	if d.dryRun() && len(d.request.Test) > 0 {
		d.faults.Add(mailing.PartTest, "NOT_ALLOWED", "must not be given with dryRun, which sends nothing")
	}
}

func (d *mailingDraft) dryRun() bool { return d.request.DryRun == "true" }

func (d *mailingDraft) rejectsEmpty() bool { return d.request.EmptyFields == "reject" }

func (d *mailingDraft) held() bool { return d.request.Start == "false" && !d.dryRun() }

// sum is the SHA-256 of the request in canonical form, independent of the order of its parts.
// A field that is left out equals one with its default. It is keyed with hashKey, since the
// file may contain CPFs.
func (d *mailingDraft) sum(file [sha256.Size]byte, hashKey []byte) ([]byte, error) {
	r := d.request
	all := []any{
		file[:], d.filename, string(d.reading.Encoding), string(d.reading.Delimiter), r.Subject, r.HTML, r.Text, strictjson.Or(r.From, ""), strictjson.Or(r.ReplyTo, ""),
		strictjson.Or(r.SendAt, ""), r.Tags, d.delivery(), d.dryRun(), d.held(), d.tests,
	}
	if d.rejectsEmpty() { // keeps the sum of requests of earlier releases
		all = append(all, "reject")
	}
	if r.AutoText == "false" {
		all = append(all, "no text part")
	}
	if r.Template != "" { // as named: a publication does not make it another request
		all = append(all, "template", r.Template, r.Locale, d.version)
	}
	if len(d.files) > 0 {
		all = append(all, d.files)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	sum := sha256.Sum256(text)
	return accept.Keyed(sum[:], hashKey), nil
}

func (d *mailingDraft) delivery() email.Delivery {
	if d.request.Delivery == "" {
		return email.AtLeastOnce
	}
	return email.Delivery(d.request.Delivery)
}
