package mailing

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/attachment"
	"email-gateway/api/internal/ctl/output"
	mailingstore "email-gateway/shared/store/mailing"
)

// mailingView is a mailing. Its JSON names are those of the HTTP API.
type mailingView struct {
	ID           uuid.UUID           `json:"mailingId"`
	RequestID    string              `json:"requestId"`
	Filename     string              `json:"filename"`
	Status       mailingstore.Status `json:"status"`
	DryRun       bool                `json:"dryRun"`
	Subject      string              `json:"subject"`
	From         string              `json:"from"`
	ReplyTo      string              `json:"replyTo,omitempty"`
	Tags         []string            `json:"tags"`
	Delivery     string              `json:"delivery"`
	SendAt       *time.Time          `json:"sendAt,omitempty"`
	StartsAt     *time.Time          `json:"startsAt,omitempty"`
	WaitingFor   string              `json:"waitingFor,omitempty"`
	WaitingUntil *time.Time          `json:"waitingUntil,omitempty"`
	Settling     string              `json:"settling,omitempty"`
	ErrorMessage string              `json:"errorMessage,omitempty"`
	Attachments  []attachment.File   `json:"attachments,omitempty"`

	Total           int            `json:"total"`
	Accepted        int            `json:"accepted"`
	Invalid         int            `json:"invalid"`
	InvalidByReason map[string]int `json:"invalidByReason"`
	Duplicates      int            `json:"duplicates"`
	EmptyFields     int            `json:"emptyFields"`

	Expanded     int     `json:"expanded"`
	Queued       int     `json:"queued"`
	Sent         int     `json:"sent"`
	Failed       int     `json:"failed"`
	Suppressed   int     `json:"suppressed"`
	Expired      int     `json:"expired"`
	Cancelled    int     `json:"cancelled"`
	Unknown      int     `json:"unknown"`
	InvalidLater int     `json:"invalidLater"`
	Delivered    int     `json:"delivered"`
	Bounced      int     `json:"bounced"`
	Complained   int     `json:"complained"`
	Unsubscribed int     `json:"unsubscribed"`
	Rate         float64 `json:"rate"`

	CreatedAt    time.Time  `json:"createdAt"`
	UpdatedAt    time.Time  `json:"updatedAt"`
	CountedAt    *time.Time `json:"countedAt,omitempty"`
	EstimatedEnd *time.Time `json:"estimatedEnd,omitempty"`
	CompletedAt  *time.Time `json:"completedAt,omitempty"`

	now time.Time
}

// state is the status, marked if it is that of a dry run, which sends nothing.
func (v mailingView) state() string {
	if v.DryRun {
		return string(v.Status) + " (dry run)"
	}
	if v.WaitingFor == string(mailingstore.WaitsForReputation) {
		return fmt.Sprintf("%s (paused by the reputation guard; see gatewayctl company reputation show)", v.Status)
	}
	if v.WaitingUntil != nil {
		return fmt.Sprintf("%s (waits for the quota %s until %s)", v.Status, v.WaitingFor, output.Timestamp(*v.WaitingUntil))
	}
	return string(v.Status)
}

// ended counts the accepted lines whose email is in a final status.
func (v mailingView) ended() int {
	return v.Sent + v.Failed + v.Suppressed + v.Expired + v.Cancelled + v.Unknown + v.InvalidLater
}

// over reports whether the mailing is finished and its numbers are final.
func (v mailingView) over() bool {
	switch v.Status {
	case mailingstore.Completed, mailingstore.Failed:
		return true
	case mailingstore.Cancelled:
		return v.Settling == ""
	}
	return false
}

func (v mailingView) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Mailing %s is %s\n\n", v.ID, v.state())
	rows := [][]string{{"file", v.Filename}, {"subject", v.Subject}, {"from", v.From}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("reply to", v.ReplyTo)
	add("tags", strings.Join(v.Tags, ", "))
	rows = append(rows, attachment.Rows(v.Attachments)...)
	if v.StartsAt != nil {
		add("starts", output.RelativeTime(*v.StartsAt, v.now))
	} else if v.SendAt != nil {
		add("not before", output.RelativeTime(*v.SendAt, v.now))
	}
	add("lines", v.lines())
	if !v.DryRun {
		add("finished", v.outcome())
		add("feedback", v.feedback())
		if !v.over() {
			add("created", fmt.Sprintf("%s of %s emails; %s queued", output.Thousands(v.Expanded), output.Thousands(v.Accepted), output.Thousands(v.Queued)))
		}
	}
	if v.Rate > 0 && !v.over() {
		add("rate", output.Thousands(int(v.Rate))+" per second")
	}
	if v.EstimatedEnd != nil {
		add("end expected", output.RelativeTime(*v.EstimatedEnd, v.now))
	}
	add("uploaded", output.RelativeTime(v.CreatedAt, v.now))
	if v.CompletedAt != nil {
		add("completed", output.RelativeTime(*v.CompletedAt, v.now))
	}
	add("last error", v.ErrorMessage)
	output.Table(w, "  ", rows)
	if next := v.next(); next != "" {
		fmt.Fprintf(w, "\n%s\n", next)
	}
}

// lines summarizes the validation of the file's lines.
func (v mailingView) lines() string {
	line := fmt.Sprintf("%s: %s accepted", output.Thousands(v.Total), output.Thousands(v.Accepted))
	if v.Invalid > 0 {
		var reasons []string
		for code, n := range v.InvalidByReason {
			reasons = append(reasons, output.Thousands(n)+" "+code)
		}
		slices.Sort(reasons)
		line += fmt.Sprintf(", %s invalid (%s)", output.Thousands(v.Invalid), strings.Join(reasons, ", "))
	}
	if v.Duplicates > 0 {
		line += ", " + output.Count(v.Duplicates, "duplicate", "duplicates")
	}
	if v.EmptyFields > 0 {
		line += "; " + output.Thousands(v.EmptyFields) + " accepted with an empty field"
	}
	return line
}

// outcome summarizes the final statuses so far.
func (v mailingView) outcome() string {
	line := fmt.Sprintf("%s of %s: %s sent", output.Thousands(v.ended()), output.Thousands(v.Accepted), output.Thousands(v.Sent))
	if rest := v.unsuccessfulCounts(); rest != "" {
		line += ", " + rest
	}
	return line
}

// feedback summarizes the reports about the emails that were sent.
func (v mailingView) feedback() string {
	if v.Sent == 0 {
		return ""
	}
	return fmt.Sprintf("%s delivered, %s bounced, %s complained, %s unsubscribed",
		output.Thousands(v.Delivered), output.Thousands(v.Bounced), output.Thousands(v.Complained), output.Thousands(v.Unsubscribed))
}

// unsuccessfulCounts lists the final statuses other than SENT.
func (v mailingView) unsuccessfulCounts() string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{
		{v.Failed, "failed"},
		{v.Unknown, "of unknown outcome"},
		{v.Expired, "expired"},
		{v.Suppressed, "suppressed"},
		{v.Cancelled, "cancelled"},
		{v.InvalidLater, "found invalid"},
	} {
		if part.n > 0 {
			parts = append(parts, output.Thousands(part.n)+" "+part.what)
		}
	}
	return strings.Join(parts, ", ")
}

// retryable is the status of the rows that retry-failed sends again; if both exist, that of those that may need a correction.
func (v mailingView) retryable() string {
	if v.Failed > 0 {
		return "FAILED"
	}
	return "EXPIRED"
}

// next suggests the next command, as a line to paste.
func (v mailingView) next() string {
	to := func(what, command string) string {
		command, flags, _ := strings.Cut(command, " ")
		return strings.TrimSpace("To " + what + ": gatewayctl mailing " + command + " " + v.ID.String() + " " + flags)
	}
	switch {
	case v.Settling != "":
		return "In progress: " + v.Settling + "."
	case v.Status == mailingstore.Paused:
		return to("resume it", "resume")
	case v.Status == mailingstore.Failed:
		return to("retry its job after fixing the cause", "resume")
	case v.Failed+v.Expired > 0 && (v.Status == mailingstore.Completed || v.Status == mailingstore.Sending):
		return to("retry failed and expired emails", "retry-failed") + "\n" + to("see which these are and why", "rows --status "+v.retryable())
	case v.Invalid > 0 && (v.DryRun || v.Status == mailingstore.Completed):
		return to("see which lines are invalid", "verdicts")
	}
	return ""
}
