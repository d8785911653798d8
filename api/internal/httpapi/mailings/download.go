package mailings

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/companylimit"
	"email-gateway/api/internal/csvfile"
	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/httpapi/transfer"
	"email-gateway/shared/service"
	"email-gateway/shared/telemetry"
)

const (
	// downloadsAtOnce limits the memory of downloads, of which each holds a page of rowsPerFetch rows
	// while the client does not read. downloadsOfEach limits those of one company.
	downloadsAtOnce, downloadsOfEach = 32, 4
	// downloadWait limits how long a download waits for a place. It is long enough to have several of
	// other companies aborted.
	downloadWait = 30 * time.Second
	// downloadBusyRate is the minimum rate (bytes per second) of a company's only download while
	// others wait: a million rows then take 40 minutes.
	downloadBusyRate = 64 << 10
)

// downloadLimits share the memory of downloads between companies.
type downloadLimits struct {
	limiter *companylimit.Limiter
	open    *transfer.Open // of which the slowest is aborted if others wait
}

func newDownloadLimits() downloadLimits {
	l := downloadLimits{companylimit.New(downloadsAtOnce, downloadsOfEach), transfer.NewOpen(downloadBusyRate)}
	l.limiter.OnFull(l.open.WaitLimit, l.open.AbortSlowest)
	return l
}

// csvDownload is a CSV that is written while the client receives it.
type csvDownload struct {
	*csv.Writer
	close func()
}

// delimiterOf reads the delimiter of a CSV.
func delimiterOf(q *query.Query) rune {
	delimiter, _ := csvfile.ParseDelimiter(q.Text("delimiter", "delimiter"))
	return cmp.Or(rune(delimiter), ',')
}

// openDownload waits for a place for a download. The caller must call close.
func (h *Handlers) openDownload(c *gin.Context, delimiter rune) (*csvDownload, error) {
	ctx, company := c.Request.Context(), reqctx.CompanyOf(c)
	waiting, cancel := context.WithTimeout(ctx, downloadWait)
	defer cancel()
	release, err := h.downloads.limiter.EnterOrRefuse(waiting, company)
	switch {
	case errors.Is(err, companylimit.ErrCompanyLimit):
		return nil, tooManyDownloads
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, allDownloadsBusy
	}
	body := response.NewDownload(c)
	remove := h.downloads.open.Add(company, body)
	out := csv.NewWriter(body)
	out.Comma, out.UseCRLF = delimiter, true // RFC 4180
	return &csvDownload{Writer: out, close: func() {
		remove()
		release()
		response.ExtendWriteDeadline(c) // for what net/http still holds
	}}, nil
}

// byteOrderMark makes Excel read a CSV as UTF-8.
const byteOrderMark = "\ufeff"

// begin writes the headers of the response, and the names of the columns. A delimiter other than the default is that of a
// spreadsheet program, so the file begins with a byte order mark. Flush reports errors. Until endDownload, closing the
// connection resets it.
func (d *csvDownload) begin(c *gin.Context, mailing uuid.UUID, what string, columns []string) {
	c.Header("Content-Type", response.TypeCSV+"; charset=utf-8; header=present")
	c.Header("Content-Disposition", `attachment; filename="mailing-`+mailing.String()+"-"+what+`.csv"`)
	c.Status(http.StatusOK)
	c.Writer.WriteHeaderNow() // whatever fails from now on aborts the response
	service.ResetOnClose(c.Request.Context(), true)
	if d.Comma != ',' {
		columns = append([]string{byteOrderMark + columns[0]}, columns[1:]...)
	}
	_ = d.Write(columns)
}

// endDownload ends the response. After an error it closes the connection, so that a client does not take an incomplete list for
// complete. net/http ends the request's context if the last bytes cannot be written.
func (h *Handlers) endDownload(c *gin.Context, out *csvDownload, err error) {
	unwritten := out.Error()
	if err == nil {
		err = unwritten
	}
	if err == nil {
		response.ExtendWriteDeadline(c)
		c.Writer.Flush()
		err = c.Request.Context().Err()
	}
	if err == nil {
		service.ResetOnClose(c.Request.Context(), false)
		return
	}
	h.Log.Warn("download aborted", telemetry.RequestID, reqctx.StateOf(c).RequestID, "route", c.FullPath(), "error", fmt.Sprint(err))
	response.Abort(c, err, unwritten != nil)
}
