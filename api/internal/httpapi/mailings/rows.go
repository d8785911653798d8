package mailings

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/mailing"
	"email-gateway/api/internal/strictjson"
	"email-gateway/shared/email"
	mailingstore "email-gateway/shared/store/mailing"
	"email-gateway/shared/store/mailingreport"
	"email-gateway/shared/template"
)

// mailingRow is a row of a mailing's file with its result. A rejected row has neither address
// nor outboxId.
type mailingRow struct {
	Line           int        `json:"line"`
	Email          string     `json:"email,omitempty"`
	Status         string     `json:"status"`
	ErrorCode      string     `json:"errorCode,omitempty"`
	ErrorReason    string     `json:"errorReason,omitempty"`
	Column         string     `json:"column,omitempty"`
	EmptyFields    []string   `json:"emptyFields,omitempty"`
	OutboxID       *uuid.UUID `json:"outboxId,omitempty"`
	OutcomeUnknown bool       `json:"outcomeUnknown"`
	Attempts       int        `json:"attempts"`
	LastAttemptAt  *time.Time `json:"lastAttemptAt,omitempty"`
	SESMessageID   *string    `json:"sesMessageId,omitempty"`
	ExternalID     *string    `json:"externalId,omitempty"`
	LastLine       int        `json:"lastLine,omitempty"` // of a rejected row of several lines

	Delivery       *email.DeliveryState `json:"delivery,omitempty"`
	DeliveryAt     *time.Time           `json:"deliveryAt,omitempty"`
	DeliveryReason *string              `json:"deliveryReason,omitempty"`
}

type rowPage struct {
	Rows       []mailingRow `json:"rows"`
	NextCursor string       `json:"nextCursor,omitempty"`
}

// rowCursor is the last row of a page.
type rowCursor struct {
	Line  int       `json:"l"`
	Entry uuid.UUID `json:"e"`
}

const (
	rowStatusRule = entryStatusRule + " " + mailingreport.RowDuplicate
	// rowsPerFetch is how many rows a download reads per query and holds in memory. A row with the longest texts is a few KiB.
	rowsPerFetch = 250
)

// ListRows returns the rows of a mailing's file: a page as JSON, or all as CSV.
func (h *Handlers) ListRows(c *gin.Context) error {
	id, err := mailingID(c)
	if err != nil {
		return err
	}
	q, err := query.Open(c.Request, h.Rules)
	if err != nil {
		return err
	}
	format := q.Text("format", "oneof=json csv")
	filter := mailingreport.RowFilter{Status: q.Text("status", rowStatusRule)}
	asCSV := format == "csv" || format == "" && response.Negotiate(c, gin.MIMEJSON, response.TypeCSV) == response.TypeCSV
	c.Header("Vary", "Accept")
	if asCSV {
		for _, name := range []string{"cursor", "limit"} {
			if _, given := q.Get(name); given {
				q.Faults.Add(name, "NOT_ALLOWED", "is only for JSON pages: CSV contains all rows")
			}
		}
		delimiter := delimiterOf(q)
		if err := q.Close(); err != nil {
			return err
		}
		return h.downloadRows(c, id, filter, delimiter)
	}
	if _, given := q.Get("delimiter"); given {
		q.Faults.Add("delimiter", "NOT_ALLOWED", "is only for CSV")
	}
	filter.Limit = q.Limit("limit")
	var last rowCursor
	if q.CursorInto("cursor", &last) {
		if last.Line < 0 || last.Line > math.MaxInt32 { // the type of the column
			q.RejectCursor("cursor")
		}
		filter.After = mailingreport.RowCursor(last)
	}
	if err := q.Close(); err != nil {
		return err
	}
	found, err := h.Store.MailingRows(c.Request.Context(), reqctx.CompanyOf(c), id, filter)
	if err != nil {
		return problemOf(err)
	}
	page := rowPage{Rows: make([]mailingRow, len(found.Rows))}
	for i, r := range found.Rows {
		page.Rows[i] = rowOf(r)
	}
	if found.More {
		if page.NextCursor, err = q.EncodeCursor(rowCursor(found.End)); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, page)
	return nil
}

// downloadRows streams all rows. On an error the connection is closed, so that a client does
// not take an incomplete list for complete.
func (h *Handlers) downloadRows(c *gin.Context, id uuid.UUID, filter mailingreport.RowFilter, delimiter rune) error {
	filter.Limit = rowsPerFetch
	company := reqctx.CompanyOf(c)
	out, err := h.openDownload(c, delimiter)
	if err != nil {
		return err
	}
	defer out.close()
	page, err := h.Store.MailingRows(c.Request.Context(), company, id, filter)
	if err != nil {
		return problemOf(err) // nothing was written yet
	}
	out.begin(c, id, "rows", rowColumns)
	for {
		for _, r := range page.Rows {
			_ = out.Write(rowCells(rowOf(r)))
		}
		out.Flush()
		if err = out.Error(); err != nil || !page.More { // includes errors of Write
			break
		}
		filter.After = page.End
		if err = h.StillValid(c); err != nil {
			break
		}
		if page, err = h.Store.MailingRows(c.Request.Context(), company, id, filter); err != nil {
			break
		}
	}
	h.endDownload(c, out, err)
	return nil
}

// rowColumns are the column names of rowCells. Add new columns at the end.
var rowColumns = []string{
	"line", "email", "status", "errorCode", "errorReason", "column", "emptyFields", "outboxId", "attempts", "lastAttemptAt", "sesMessageId", "externalId",
	"outcomeUnknown", "delivery", "deliveryAt", "deliveryReason", "lastLine",
}

func rowCells(r mailingRow) []string {
	var outbox, last, delivered string
	if r.OutboxID != nil {
		outbox = r.OutboxID.String()
	}
	if r.LastAttemptAt != nil {
		last = r.LastAttemptAt.Format(time.RFC3339)
	}
	if r.DeliveryAt != nil {
		delivered = r.DeliveryAt.Format(time.RFC3339)
	}
	return []string{
		strconv.Itoa(r.Line), escapeFormula(r.Email), r.Status, r.ErrorCode, escapeFormula(r.ErrorReason), escapeFormula(r.Column), escapeFormula(strings.Join(r.EmptyFields, "; ")),
		outbox, strconv.Itoa(r.Attempts), last, escapeFormula(strictjson.Or(r.SESMessageID, "")), escapeFormula(strictjson.Or(r.ExternalID, "")),
		strconv.FormatBool(r.OutcomeUnknown), string(strictjson.Or(r.Delivery, "")), delivered, escapeFormula(strictjson.Or(r.DeliveryReason, "")), lastLineCell(r.LastLine),
	}
}

// lastLineCell is empty for a row of one line.
func lastLineCell(line int) string {
	if line == 0 {
		return ""
	}
	return strconv.Itoa(line)
}

func rowOf(r mailingreport.Row) mailingRow {
	shown := mailingRow{
		Line: r.Line, LastLine: r.LastLine, Email: r.Email, Status: r.Status, ErrorCode: r.Code, ErrorReason: rowReason(r), Column: r.Column, EmptyFields: r.EmptyFields,
		OutcomeUnknown: r.OutcomeUnknown, Attempts: r.Attempts, LastAttemptAt: response.InUTC(r.LastAttempt), SESMessageID: r.SESMessageID, ExternalID: r.ExternalID,
		Delivery: r.Delivery, DeliveryAt: response.InUTC(r.DeliveryAt), DeliveryReason: r.DeliveryReason,
	}
	if r.ID.Valid {
		shown.OutboxID = &r.ID.UUID
	}
	return shown
}

// rowReason returns the stored reason, or the meaning of the validation code.
func rowReason(r mailingreport.Row) string {
	if r.Reason != "" {
		return r.Reason
	}
	return codeMeanings[r.Code]
}

// codeMeanings describes the codes of validation results.
var codeMeanings = map[string]string{
	mailing.CodeMissingEmail:    "the row has no address",
	mailing.CodeInvalidEmail:    "the row's address has no @, or more than 254 characters",
	"SYNTAX":                    "the address is not a valid email address",
	"DISPOSABLE":                "the domain of the address is a disposable email domain",
	"MX":                        "the domain of the address accepts no mail",
	mailingstore.CodeDuplicate:  "an earlier row has the same address",
	mailing.CodeInvalidTaxID:    "the column has no valid CPF or CNPJ",
	mailing.CodeTooLong:         "the column has a value that is too long",
	mailing.CodeBadCharacter:    "the column has a control character",
	mailing.CodeInvalidLink:     "the template uses the column as a link, but its value is not a valid link",
	mailing.CodeSubjectLength:   "the subject would be empty or longer than 150 characters",
	mailing.CodeBodyTooLarge:    "the body would be larger than 512 KiB",
	mailing.CodeEmptyBody:       "the body would be empty",
	template.CodeType:           "an empty cell has a declared default that is a list, where the template needs a text",
	template.CodeTooMuch:        "the row makes the template evaluate more tags than the largest template has",
	mailingstore.CodeEmptyField: "the column is empty, the template has no default for it, and emptyFields is reject",
	csvfile.CodeWrongFieldCount: "the row has more fields than the header, ends before the column of the address, or has too few fields and follows a row with a broken quote",
	csvfile.CodeUnclosedQuote:   "a quote in the row is not closed",
	csvfile.CodeRowInQuotes:     "a quoted cell contains a line that is a row by itself: a quote is not closed, or the cell has line breaks to remove",
	csvfile.CodeLineTooLong:     "the line is longer than 65,536 bytes",
	email.CodeSuppressed:        "the address is suppressed",
	email.CodeExpired:           "the deadline of the email passed before it was sent",
	email.CodeOutcomeUnknown:    "the outcome is unknown: the provider may have accepted the email",
}
