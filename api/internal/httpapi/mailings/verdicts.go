package mailings

import (
	"iter"
	"regexp"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	mailingstore "email-gateway/shared/store/mailing"
)

// DownloadVerdicts streams the validation results of rejected lines as CSV. It contains no
// values of the file, so it can be passed on. On an error the connection is closed, so that a
// client does not take an incomplete list for complete.
func (h *Handlers) DownloadVerdicts(c *gin.Context) error {
	id, err := mailingID(c)
	if err != nil {
		return err
	}
	q, err := query.Open(c.Request, h.Rules)
	if err != nil {
		return err
	}
	delimiter := delimiterOf(q)
	if err := q.Close(); err != nil {
		return err
	}
	out, err := h.openDownload(c, delimiter)
	if err != nil {
		return err
	}
	defer out.close()
	next, stop := iter.Pull2(h.Store.MailingVerdicts(c.Request.Context(), reqctx.CompanyOf(c), id))
	defer stop()
	line, err, more := next() // an error before the first line is returned as a problem
	if err != nil {
		return problemOf(err)
	}
	out.begin(c, id, "verdicts", []string{"line", "column", "code", "lastLine"})
	for n := 1; more && err == nil; n++ {
		if n%rowsPerFetch == 0 {
			if err = h.StillValid(c); err != nil {
				break
			}
		}
		if err = out.Write(rejectedLineCells(line)); err == nil {
			line, err, more = next()
		}
	}
	out.Flush()
	h.endDownload(c, out, err)
	return nil
}

func rejectedLineCells(l mailingstore.RejectedLine) []string {
	return []string{strconv.Itoa(l.Line), escapeFormula(l.Column), l.Code, lastLineCell(l.LastLine)}
}

// formula matches the sign of a formula, also in full width, at the beginning of a text or of a part behind a delimiter.
// Some programs ignore space before the sign. Excel divides a CSV by the list separator of the system, which is ; in Portuguese:
// to Excel, a quoted field that follows a comma is then the middle of a cell, so quotes do not protect it, and a part may have
// quotes of its own.
var formula = regexp.MustCompile(`(^|[;,|\t\r\n])([ \v\f\x{85}\p{Z}"]*[=+\-@＝＋－＠])`)

// escapeFormula prevents a spreadsheet from evaluating text of the file, such as the name of a column, or of a recipient's mail
// server as a formula: it inserts an apostrophe where a cell may begin.
func escapeFormula(text string) string {
	text = formula.ReplaceAllString(text, "$1'$2")
	if strings.IndexAny(text, "\t\r\n") == 0 {
		return "'" + text
	}
	return text
}
