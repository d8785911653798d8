package httpapi

import (
	"encoding/csv"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"email-gateway/shared/store"
	"email-gateway/shared/telemetry"
)

// allowEvery is after how many lines of a download the client gets new time for the
// next ones.
const allowEvery = 1000

// downloadVerdicts writes every line that is not sent to, and why, as CSV. It never
// holds a value of the file: a verdict can be passed on. It is streamed: a list that
// breaks off in the middle ends with the connection, so that nobody takes it for whole.
func (a *API) downloadVerdicts(c *gin.Context) error {
	id, err := mailingID(c)
	if err != nil {
		return err
	}
	next, stop := iter.Pull2(a.store.MailingVerdicts(c.Request.Context(), visitOf(c).caller.CompanyID, id))
	defer stop()
	line, err, more := next() // what is wrong from the beginning is a problem like any other
	if err != nil {
		return mailingProblem(err)
	}
	c.Header("Content-Type", "text/csv; charset=utf-8; header=present")
	c.Header("Content-Disposition", `attachment; filename="mailing-`+id.String()+`-verdicts.csv"`)
	c.Status(http.StatusOK)
	out := csv.NewWriter(c.Writer)
	out.UseCRLF = true                                // RFC 4180
	_ = out.Write([]string{"line", "column", "code"}) // Flush's error tells
	for n := 1; more && err == nil; n++ {
		if n%allowEvery == 1 {
			allowAnswer(c)
		}
		if err = out.Write(verdictRow(line)); err == nil {
			line, err, more = next()
		}
	}
	out.Flush()
	if err == nil {
		err = out.Error()
	}
	if err != nil {
		a.log.Warn("download of verdicts broke off", telemetry.RequestID, visitOf(c).requestID, "error", fmt.Sprint(err))
		panic(http.ErrAbortHandler)
	}
	return nil
}

func verdictRow(l store.RejectedLine) []string {
	return []string{strconv.Itoa(l.Line), harmless(l.Column), l.Code}
}

// formulaSigns are what a formula begins with, as they are and in full width.
const formulaSigns = "=+-@＝＋－＠"

// harmless keeps a spreadsheet from taking the name of a column, which the file's
// author made up, for a formula.
func harmless(text string) string {
	begin := strings.TrimSpace(text) // some programs pass over space before a formula
	if strings.IndexAny(begin, formulaSigns) == 0 || strings.IndexAny(text, "\t\r\n") == 0 {
		return "'" + text
	}
	return text
}
