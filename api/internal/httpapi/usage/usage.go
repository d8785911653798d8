package usage

import (
	"context"
	"encoding/csv"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/api/internal/httpapi/query"
	"email-gateway/api/internal/httpapi/reqctx"
	"email-gateway/api/internal/httpapi/response"
	"email-gateway/api/internal/httpapi/slots"
	"email-gateway/shared/rules"
	"email-gateway/shared/store/usage"
)

// Store is the part of *usage.Store that requests use.
type Store interface {
	Month(ctx context.Context, company uuid.UUID, at time.Time) (usage.Month, error)
	Quotas(ctx context.Context, company uuid.UUID) ([]usage.Quota, error)
}

// monthAnswer is the response of GET /v1/usage.
type monthAnswer struct {
	Month       string        `json:"month"`
	Final       bool          `json:"final"`
	CountedFrom *time.Time    `json:"countedFrom,omitempty"`
	Total       usage.Counts  `json:"total"`
	Days        []dayCounts   `json:"days"`
	Quotas      []usage.Quota `json:"quotas"`
}

type dayCounts struct {
	Date string `json:"date"`
	usage.Counts
}

// monthFormat is how a month is written.
const monthFormat = "2006-01"

// columns are the column names of cells. Add new columns at the end.
var columns = []string{"date", "accepted", "sent", "delivered", "bounced", "complained", "mailings", "bytes"}

func cells(date string, c usage.Counts) []string {
	cells := []string{date}
	for _, n := range []int64{c.Accepted, c.Sent, c.Delivered, c.Bounced, c.Complained, c.Mailings, c.Bytes} {
		cells = append(cells, strconv.FormatInt(n, 10))
	}
	return cells
}

// Show returns what the company used in a month, as JSON or CSV.
func (h *Handlers) Show(c *gin.Context) error {
	q, err := query.Open(c.Request, h.rules)
	if err != nil {
		return err
	}
	month, format := monthOf(q, "month"), q.Text("format", "oneof=json csv")
	if err := q.Close(); err != nil {
		return err
	}
	c.Header("Vary", "Accept")
	ctx, company := c.Request.Context(), reqctx.CompanyOf(c)
	m, err := slots.Run(ctx, h.slots, company, func() (usage.Month, error) { return h.store.Month(ctx, company, month) })
	switch {
	case errors.Is(err, usage.ErrFuture):
		q.Faults.Add("month", rules.CodeOutOfRange, "has not begun (UTC)")
		return q.Close()
	case errors.Is(err, usage.ErrUncounted):
		q.Faults.Add("month", rules.CodeOutOfRange, "is not counted: usage of the company is counted from "+m.CountedFrom.Format(time.RFC3339)+" on")
		return q.Close()
	case err != nil:
		return err
	}
	if format == "csv" || format == "" && response.Negotiate(c, gin.MIMEJSON, response.TypeCSV) == response.TypeCSV {
		writeCSV(c, m)
		return nil
	}
	quotas, err := slots.Run(ctx, h.slots, company, func() ([]usage.Quota, error) { return h.store.Quotas(ctx, company) })
	if err != nil {
		return err
	}
	answer := monthAnswer{Month: m.Begin.Format(monthFormat), Final: m.Final, Total: m.Total, Days: make([]dayCounts, len(m.Days)), Quotas: quotas}
	if m.CountedFrom.After(m.Begin) {
		answer.CountedFrom = &m.CountedFrom
	}
	for i, d := range m.Days {
		answer.Days[i] = dayCounts{Date: d.Date.Format(time.DateOnly), Counts: d.Counts}
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

// writeCSV writes a row per day, and the total. Errors of a client that is gone are its own.
func writeCSV(c *gin.Context, m usage.Month) {
	c.Header("Content-Type", response.TypeCSV+"; charset=utf-8; header=present")
	c.Header("Content-Disposition", `attachment; filename="usage-`+m.Begin.Format(monthFormat)+`.csv"`)
	c.Status(http.StatusOK)
	out := csv.NewWriter(c.Writer)
	out.UseCRLF = true // RFC 4180
	_ = out.Write(columns)
	for _, d := range m.Days {
		_ = out.Write(cells(d.Date.Format(time.DateOnly), d.Counts))
	}
	_ = out.Write(cells("total", m.Total))
	out.Flush()
}

// monthOf reads a month; the zero time if there is none.
func monthOf(q *query.Query, name string) time.Time {
	value, given := q.Get(name)
	if !given {
		return time.Time{}
	}
	t, err := time.Parse(monthFormat, value)
	switch {
	case err != nil:
		q.Faults.Add(name, "INVALID_MONTH", "must be a month such as 2026-11")
	case !query.WithinReason(t):
		q.Faults.Add(name, rules.CodeOutOfRange, query.ReasonableTimes)
	}
	return t
}
