package httpapi

import (
	"context"
	"encoding/csv"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/google/uuid"

	"email-gateway/shared/rules"
	"email-gateway/shared/store/usage"
)

// UsageStore is the part of *usage.Store that requests use.
type UsageStore interface {
	Month(ctx context.Context, company uuid.UUID, at time.Time) (usage.Month, error)
	Quotas(ctx context.Context, company uuid.UUID) ([]usage.Quota, error)
}

// usageAnswer is the response of GET /v1/usage.
type usageAnswer struct {
	Month       string        `json:"month"`
	Final       bool          `json:"final"`
	CountedFrom *time.Time    `json:"countedFrom,omitempty"`
	Total       usage.Counts  `json:"total"`
	Days        []usageDay    `json:"days"`
	Quotas      []usage.Quota `json:"quotas"`
}

type usageDay struct {
	Date string `json:"date"`
	usage.Counts
}

// monthFormat is how a month is written.
const monthFormat = "2006-01"

// usageColumns are the column names of usageCells. Add new columns at the end.
var usageColumns = []string{"date", "accepted", "sent", "delivered", "bounced", "complained", "mailings", "bytes"}

func usageCells(date string, c usage.Counts) []string {
	cells := []string{date}
	for _, n := range []int64{c.Accepted, c.Sent, c.Delivered, c.Bounced, c.Complained, c.Mailings, c.Bytes} {
		cells = append(cells, strconv.FormatInt(n, 10))
	}
	return cells
}

// showUsage returns what the company used in a month, as JSON or CSV.
func (a *API) showUsage(c *gin.Context) error {
	q, err := openQuery(c.Request.URL.RawQuery, a.rules)
	if err != nil {
		return err
	}
	month, format := q.month("month"), q.text("format", "oneof=json csv")
	if err := q.close(); err != nil {
		return err
	}
	c.Header("Vary", "Accept")
	c.Header("Cache-Control", "no-store")
	ctx, company := c.Request.Context(), visitOf(c).caller.CompanyID
	m, err := inPlace(ctx, a.store, company, func() (usage.Month, error) { return a.usage.Month(ctx, company, month) })
	switch {
	case errors.Is(err, usage.ErrFuture):
		q.faults.Add("month", rules.CodeOutOfRange, "has not begun (UTC)")
		return q.close()
	case errors.Is(err, usage.ErrUncounted):
		q.faults.Add("month", rules.CodeOutOfRange, "is not counted: usage of the company is counted from "+m.CountedFrom.Format(time.RFC3339)+" on")
		return q.close()
	case err != nil:
		return err
	}
	if format == "csv" || format == "" && c.NegotiateFormat(gin.MIMEJSON, typeCSV) == typeCSV {
		writeUsage(c, m)
		return nil
	}
	quotas, err := inPlace(ctx, a.store, company, func() ([]usage.Quota, error) { return a.usage.Quotas(ctx, company) })
	if err != nil {
		return err
	}
	answer := usageAnswer{Month: m.Begin.Format(monthFormat), Final: m.Final, Total: m.Total, Days: make([]usageDay, len(m.Days)), Quotas: quotas}
	if m.CountedFrom.After(m.Begin) {
		answer.CountedFrom = &m.CountedFrom
	}
	for i, d := range m.Days {
		answer.Days[i] = usageDay{Date: d.Date.Format(time.DateOnly), Counts: d.Counts}
	}
	c.JSON(http.StatusOK, answer)
	return nil
}

// writeUsage writes a row per day, and the total. Errors of a client that is gone are its own.
func writeUsage(c *gin.Context, m usage.Month) {
	c.Header("Content-Type", typeCSV+"; charset=utf-8; header=present")
	c.Header("Content-Disposition", `attachment; filename="usage-`+m.Begin.Format(monthFormat)+`.csv"`)
	c.Status(http.StatusOK)
	out := csv.NewWriter(c.Writer)
	out.UseCRLF = true // RFC 4180
	_ = out.Write(usageColumns)
	for _, d := range m.Days {
		_ = out.Write(usageCells(d.Date.Format(time.DateOnly), d.Counts))
	}
	_ = out.Write(usageCells("total", m.Total))
	out.Flush()
}

// month reads a month; the zero time if there is none.
func (q *query) month(name string) time.Time {
	value, given := q.get(name)
	if !given {
		return time.Time{}
	}
	t, err := time.Parse(monthFormat, value)
	switch {
	case err != nil:
		q.faults.Add(name, "INVALID_MONTH", "must be a month such as 2026-11")
	case !withinReason(t):
		q.faults.Add(name, rules.CodeOutOfRange, reasonableTimes)
	}
	return t
}
