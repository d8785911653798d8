package mailings

import (
	"iter"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

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
	out, err := h.openDownload(c)
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
	out.begin(c, id, "verdicts", []string{"line", "column", "code"})
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
	return []string{strconv.Itoa(l.Line), escapeFormula(l.Column), l.Code}
}

// formulaSigns are the first characters of formulas, also in full width.
const formulaSigns = "=+-@＝＋－＠"

// escapeFormula prevents a spreadsheet from evaluating text of the file, such as the name of a
// column, as a formula.
func escapeFormula(text string) string {
	begin := strings.TrimSpace(text) // some programs ignore leading space
	if strings.IndexAny(begin, formulaSigns) == 0 || strings.IndexAny(text, "\t\r\n") == 0 {
		return "'" + text
	}
	return text
}
