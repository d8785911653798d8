package privacy

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/file"
	"email-gateway/shared/store/person"
	"email-gateway/shared/uuidv7"
)

// Export holds everything stored about a person. Rows are those of the tables, column by column;
// numbers are decrypted. About other people it contains only what the person already received:
// an email's cc, but not its bcc.
type Export struct {
	CompanyID     uuid.UUID         `json:"companyId"`
	ExportedAt    time.Time         `json:"exportedAt"`
	KnownBy       KnownBy           `json:"knownBy"`
	Recipients    []json.RawMessage `json:"recipients"`
	Emails        []json.RawMessage `json:"emails"`    // outbox rows, including pending recipient updates
	Copies        []json.RawMessage `json:"copies"`    // emails to others with the person in cc, bcc or replyTo, without data of the others
	EmailLogs     []json.RawMessage `json:"emailLogs"` // each with its timeline
	Entries       []json.RawMessage `json:"mailingEntries"`
	DeadLetters   []json.RawMessage `json:"deadLetters"`
	Suppressions  []SuppressionRow  `json:"suppressions"`
	Answers       []json.RawMessage `json:"idempotencyAnswers"`
	Notifications []json.RawMessage `json:"sesEvents"`   // SES events, masked as stored
	Attachments   []json.RawMessage `json:"attachments"` // of the emails, without their contents
	Files         []FileLines       `json:"files"`
	// UndecryptableFiles are mailings whose files cannot be decrypted, so that they may name the person.
	UndecryptableFiles []uuid.UUID `json:"unreadFiles"`
	// UndecryptableNumbers are rows above whose number cannot be decrypted: it is exported as stored.
	UndecryptableNumbers []uuid.UUID    `json:"unreadNumbers"`
	Counts               map[string]int `json:"counts"`
}

// KnownBy lists the identifiers by which the rows were found.
type KnownBy struct {
	Addresses       []string    `json:"addresses"`
	SharedAddresses []string    `json:"sharedAddresses"` // shared with other people: not searched for
	RecipientIDs    []uuid.UUID `json:"recipientIds"`
	ExternalIDs     []string    `json:"externalIds"`
	TaxIDHashes     []string    `json:"cpfCnpjHashes"`
	// SharedExternalIDs are shared with other people: not searched for.
	SharedExternalIDs []string `json:"sharedExternalIds"`
	// SharedNumbers are the first digits of the hashes of CPFs and CNPJs that other addresses have at the same time, such as
	// the contacts of a company: not searched for.
	SharedNumbers []string `json:"sharedNumbers"`
	// People is the number of distinct CPFs and CNPJs of the recipients: with more than one, the
	// export contains data of several people and must not be given to one of them.
	People int `json:"people"`
}

// SuppressionRow is a suppressed address.
type SuppressionRow struct {
	Address   string     `json:"address"`
	Reason    string     `json:"reason"`
	MailingID *uuid.UUID `json:"mailingId,omitempty"`
	Note      *string    `json:"note,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
}

// Export collects everything about the person and writes an audit entry.
func (a *Archive) Export(ctx context.Context, by audit.Operator, q Query) (Export, error) {
	p, err := a.find(ctx, q)
	if err != nil {
		return Export{}, err
	}
	run := uuidv7.New()
	if err := a.People.Record(ctx, by, "person.export", q.CompanyID, run, map[string]any{"by": q.by()}); err != nil {
		return Export{}, err
	}
	return a.collect(ctx, p)
}

// Preview describes what an erasure would erase.
type Preview struct {
	Rows    int // rows and files that name the person
	KnownBy KnownBy
}

// Preview finds what an erasure would erase, and changes nothing.
func (a *Archive) Preview(ctx context.Context, q Query) (Preview, error) {
	p, err := a.find(ctx, q)
	if err != nil {
		return Preview{}, err
	}
	x, err := a.collect(ctx, p)
	n := 0
	for _, count := range x.Counts {
		n += count
	}
	return Preview{Rows: n - len(x.Answers) - len(x.Notifications), KnownBy: x.KnownBy}, err
}

// everything scans all rows with all columns.
var everything = person.Scan{Until: uuid.Max, Whole: true}

func (a *Archive) collect(ctx context.Context, p subject) (Export, error) {
	x := Export{
		CompanyID: p.CompanyID, ExportedAt: time.Now().UTC(), KnownBy: KnownBy{
			Addresses: list(p.Addresses), SharedAddresses: list(p.Shared), RecipientIDs: list(p.Recipients), ExternalIDs: list(p.ExternalIDs), SharedExternalIDs: list(p.SharedIDs), SharedNumbers: beginnings(p.SharedNumbers), TaxIDHashes: list(p.Hashes), People: p.Numbers,
		},
		Recipients: []json.RawMessage{}, Emails: []json.RawMessage{}, Copies: []json.RawMessage{}, EmailLogs: []json.RawMessage{}, Entries: []json.RawMessage{},
		DeadLetters: []json.RawMessage{}, Suppressions: []SuppressionRow{}, Files: []FileLines{}, UndecryptableFiles: []uuid.UUID{}, UndecryptableNumbers: []uuid.UUID{},
	}
	var outboxIDs []uuid.UUID
	copies := map[uuid.UUID]bool{} // deduplicates an email's row, log and dead letter
	collect := func(into *[]json.RawMessage, ids bool) func([]person.Row) error {
		return func(rows []person.Row) error {
			for _, r := range rows {
				if r.Copy {
					id, copied, err := copyOf(r.Row)
					if err != nil {
						return err
					}
					if !copies[id] {
						x.Copies, copies[id] = append(x.Copies, copied), true
					}
					continue
				}
				opened, whole, err := a.opened(p, r.Row)
				if err != nil {
					return err
				}
				if !whole {
					x.UndecryptableNumbers = append(x.UndecryptableNumbers, r.ID)
				}
				if *into = append(*into, opened); ids {
					outboxIDs = append(outboxIDs, r.ID)
				}
			}
			return nil
		}
	}
	for _, place := range []struct {
		table person.Table
		into  *[]json.RawMessage
	}{
		{person.Emails, &x.Emails}, {person.Logs, &x.EmailLogs}, {person.DeadLetters, &x.DeadLetters}, {person.Recipients, &x.Recipients},
	} {
		a.report(string(place.table), len(*place.into))
		if err := a.each(ctx, p, place.table, everything, collect(place.into, place.table == person.Emails || place.table == person.Logs)); err != nil {
			return Export{}, err
		}
	}
	if err := a.collectMailings(ctx, p, &x, collect(&x.Entries, false)); err != nil {
		return Export{}, err
	}
	suppressions, err := a.People.Suppressions(ctx, p.Person)
	if err != nil {
		return Export{}, err
	}
	for _, s := range suppressions {
		x.Suppressions = append(x.Suppressions, SuppressionRow{s.Address, string(s.Reason), s.MailingID, s.Note, s.CreatedAt.UTC()})
	}
	if x.Answers, err = a.People.Answers(ctx, p.Person, outboxIDs); err != nil {
		return Export{}, err
	}
	if x.Notifications, err = a.People.Notifications(ctx, outboxIDs); err != nil {
		return Export{}, err
	}
	if x.Attachments, err = file.New(a.Store.DB()).ExportAttachments(ctx, p.CompanyID, outboxIDs); err != nil {
		return Export{}, err
	}
	x.Counts = map[string]int{
		"recipients": len(x.Recipients), "emails": len(x.Emails), "copies": len(x.Copies), "emailLogs": len(x.EmailLogs), "mailingEntries": len(x.Entries),
		"deadLetters": len(x.DeadLetters), "suppressions": len(x.Suppressions), "idempotencyAnswers": len(x.Answers), "sesEvents": len(x.Notifications), "files": len(x.Files), "attachments": len(x.Attachments),
	}
	return x, nil
}

func (a *Archive) collectMailings(ctx context.Context, p subject, x *Export, collect func([]person.Row) error) error {
	mailings, err := a.People.Mailings(ctx, p.CompanyID)
	if err != nil {
		return err
	}
	for _, m := range mailings {
		a.report("mailing "+m.ID.String(), len(x.Entries))
		var named []int // lines of the person's entries
		err := pages(everything, func(scan person.Scan) (person.Page, error) {
			return a.People.EntriesOf(ctx, p.Person, m, scan)
		}, func(rows []person.Row) error {
			for _, r := range rows {
				var entry struct {
					Line int `json:"line_no"`
				}
				if err := json.Unmarshal(r.Row, &entry); err != nil {
					return fmt.Errorf("read an entry: %w", err)
				}
				named = append(named, entry.Line)
			}
			return collect(rows)
		})
		if err != nil {
			return err
		}
		if !m.HasFile {
			continue
		}
		lines, err := a.linesOf(ctx, p, m)
		switch {
		case unreadable(err):
			x.UndecryptableFiles, lines = append(x.UndecryptableFiles, m.ID), []int{}
		case err != nil:
			return err
		}
		if lines != nil {
			lines = append(lines, named...)
			slices.Sort(lines)
			lines = slices.Compact(lines)
		}
		if len(lines) > 0 {
			x.Files = append(x.Files, FileLines{m.ID, m.Filename, lines})
		}
	}
	return nil
}

// opened returns a row with its number decrypted and without other recipients of the email. whole
// is false if the number is damaged or its key is not in the ring: it then stays as stored.
func (a *Archive) opened(p subject, row json.RawMessage) (opened json.RawMessage, whole bool, err error) {
	var columns map[string]json.RawMessage
	if err := json.Unmarshal(row, &columns); err != nil {
		return nil, false, fmt.Errorf("read a row: %w", err)
	}
	if err := p.withoutOthers(columns); err != nil {
		return nil, false, err
	}
	if err := p.withoutOtherContacts(row, columns); err != nil {
		return nil, false, err
	}
	var encrypted *string
	if err := json.Unmarshal(orNull(columns["cpf_cnpj_enc"]), &encrypted); err != nil {
		return nil, false, fmt.Errorf("read an encrypted number: %w", err)
	}
	whole = true
	if encrypted != nil {
		raw, err := hex.DecodeString(strings.TrimPrefix(*encrypted, `\x`))
		if err != nil {
			return nil, false, fmt.Errorf("read an encrypted number: %w", err)
		}
		bare, err := a.Ring.Open(p.CompanyID, raw)
		switch {
		case unreadable(err):
			whole = false
		case err != nil:
			return nil, false, fmt.Errorf("decrypt a number: %w", err)
		default:
			delete(columns, "cpf_cnpj_enc")
			columns["cpf_cnpj"], _ = json.Marshal(bare) // a string
		}
	}
	opened, err = json.Marshal(columns)
	return opened, whole, err
}

func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}

// copyOf returns what the row, log or dead letter of an email to another person says to a person
// who got a copy: the time and the subject, but no other recipients.
func copyOf(row json.RawMessage) (uuid.UUID, json.RawMessage, error) {
	var o struct {
		ID        uuid.UUID `json:"id"`
		OutboxID  uuid.UUID `json:"outbox_id"`
		Status    string    `json:"status"`
		CreatedAt string    `json:"created_at"`
		Subject   string    `json:"subject"`
		Payload   struct {
			Subject string `json:"subject"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(row, &o); err != nil {
		return uuid.Nil, nil, fmt.Errorf("read a row: %w", err)
	}
	if o.OutboxID != uuid.Nil {
		o.ID = o.OutboxID
	}
	copied, err := json.Marshal(map[string]any{"id": o.ID, "status": o.Status, "created_at": o.CreatedAt, "subject": cmp.Or(o.Payload.Subject, o.Subject)})
	return o.ID, copied, err
}

// beginnings returns the first 8 digits of hashes, which are enough to find their rows in an export: a whole hash of a CPF
// would reveal it.
func beginnings(hashes []string) []string {
	shown := make([]string, len(hashes))
	for i, hash := range hashes {
		shown[i] = hash[:min(8, len(hash))]
	}
	return shown
}

// list returns a slice that is never null in JSON.
func list[T any](values []T) []T { return append([]T{}, values...) }
