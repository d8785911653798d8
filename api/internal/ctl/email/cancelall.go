package email

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/email"
	"email-gateway/shared/store"
	"email-gateway/shared/store/audit"
	"email-gateway/shared/store/outbox"
)

// cancelledEmails counts the emails of email cancel -.
type cancelledEmails struct {
	Emails           int            `json:"emails"`
	Cancelled        int            `json:"cancelled"`
	AlreadyCancelled int            `json:"alreadyCancelled"`
	NotCancelled     map[string]int `json:"notCancelled"` // by status, NOT_FOUND or LOCKED
}

// The keys of NotCancelled for emails without a status.
const (
	notFound = "NOT_FOUND"
	locked   = "LOCKED"
)

func (v cancelledEmails) Failure() error {
	if left := v.Emails - v.Cancelled - v.AlreadyCancelled; left > 0 {
		return fmt.Errorf("%s not cancelled", output.Count(left, "email was", "emails were"))
	}
	return nil
}

func (v cancelledEmails) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s of %s cancelled.\n", output.Thousands(v.Cancelled), output.Count(v.Emails, "email was", "emails were"))
	if v.AlreadyCancelled > 0 {
		fmt.Fprintf(w, "%s cancelled before.\n", output.Count(v.AlreadyCancelled, "email was", "emails were"))
	}
	for _, status := range slices.Sorted(maps.Keys(v.NotCancelled)) {
		fmt.Fprintf(w, "%s %s.\n", output.Count(v.NotCancelled[status], "email is", "emails are"), status)
	}
}

// cancelAll cancels the emails whose ids are on standard input, and lists those that cannot be cancelled on standard error.
func cancelAll(ctx context.Context, c *command.Invocation, s *store.Store, by audit.Operator) (output.Result, error) {
	ids, err := readIDs(c.Stdin)
	if err != nil {
		return nil, err
	}
	by.Committed = nil // after an error the command may be repeated
	v := cancelledEmails{Emails: len(ids), NotCancelled: map[string]int{}}
	var left []string
	progress, finished := c.Progress(), 0
	err = s.CancelEmails(ctx, by, ids, func(id uuid.UUID, moved outbox.Advanced) {
		finished++
		progress.Update(output.Step{What: "Cancelling", Done: int64(finished), Total: int64(len(ids))})
		status := string(moved.Status)
		switch {
		case moved.Applied:
			v.Cancelled++
			return
		case moved.Status == email.Cancelled:
			v.AlreadyCancelled++
			return
		case moved.Locked:
			status = locked
		case status == "":
			status = notFound
		}
		v.NotCancelled[status]++
		left = append(left, id.String()+" is "+status)
	})
	progress.End()
	for _, line := range left {
		fmt.Fprintln(c.Stderr, line)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: after %s: %w", operator.ErrUnfinished, output.Count(v.Cancelled, "cancelled email", "cancelled emails"), err)
	}
	return v, nil
}

// readIDs reads one id per line, and returns each id once. Blank lines are skipped.
func readIDs(r io.Reader) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	seen := map[uuid.UUID]bool{}
	lines := bufio.NewScanner(r)
	n := 1
	for ; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		id, err := parseEmail(text)
		if err != nil {
			return nil, command.Usagef("line %d: %v", n, err)
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, command.Usagef("line %d is too long: give one email id per line", n)
	case err != nil:
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return ids, nil
}
