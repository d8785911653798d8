package checker

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"email-gateway/scripts/chaos/load"
)

const mailingSQL = `
SELECT status, accepted, sent, failed, invalid_later, suppressed, expired, cancelled, unknown, invalid, duplicates
FROM mailings WHERE id = $1`

const entriesSQL = `SELECT id, email, status, outcome_unknown FROM mailing_entries WHERE mailing_id = $1`

// checkMailings checks that every valid row of every file is exactly one entry and one email.
func (c *Checker) checkMailings(ctx context.Context) error {
	for _, m := range c.records.Mailings {
		seen, err := c.checkEntries(ctx, m)
		if err != nil {
			return err
		}
		if err := c.checkMailing(ctx, m, seen); err != nil {
			return err
		}
	}
	return nil
}

// entryCounts are the numbers of a mailing's entries by status.
type entryCounts struct {
	byStatus map[string]int
	unknown  int
}

func (c *Checker) checkEntries(ctx context.Context, m load.Mailing) (entryCounts, error) {
	counts := entryCounts{byStatus: make(map[string]int)}
	rows, err := c.cluster.Database.QueryContext(ctx, entriesSQL, m.ID)
	if err != nil {
		return counts, fmt.Errorf("read entries: %w", err)
	}
	defer rows.Close()
	people := make(map[string]bool, len(m.People))
	for rows.Next() {
		var id, address, status string
		var unknown bool
		if err := rows.Scan(&id, &address, &status, &unknown); err != nil {
			return counts, fmt.Errorf("read entries: %w", err)
		}
		if m.People[address] == "" {
			continue // a row without a valid address has an entry with the error
		}
		c.Counts.Entries++
		if people[address] {
			c.Findings.Add(InconsistentCounts, "mailing %s has two entries for one address", m.ID)
		}
		people[address] = true
		if status == "FAILED" && unknown {
			counts.unknown++
		} else {
			counts.byStatus[status]++
		}
		switch e := c.emails[id]; {
		case e == nil && m.CancelPlanned && status == cancelled: // it was cancelled before it became one
		case e == nil:
			c.Findings.Add(Lost, "entry %s of mailing %s is %s, but there is no email", id, m.ID, status)
		case e.status != status:
			c.Findings.Add(InconsistentCounts, "entry %s is %s, its email %s", id, status, e.status)
		case e.mailing != m.ID.String() || !strings.EqualFold(e.to, address):
			c.Findings.Add(InconsistentCounts, "entry %s differs from its email", id)
		}
	}
	if err := rows.Err(); err != nil {
		return counts, fmt.Errorf("read entries: %w", err)
	}
	if missing := len(m.People) - len(people); missing > 0 {
		c.Findings.Add(Lost, "mailing %s has no entries for %d of %d rows", m.ID, missing, len(m.People))
	}
	return counts, nil
}

func (c *Checker) checkMailing(ctx context.Context, m load.Mailing, seen entryCounts) error {
	var status string
	var accepted, sent, failed, later, suppressed, expired, withdrawn, unknown, invalid, duplicates int
	err := c.cluster.Database.QueryRowContext(ctx, mailingSQL, m.ID).
		Scan(&status, &accepted, &sent, &failed, &later, &suppressed, &expired, &withdrawn, &unknown, &invalid, &duplicates)
	if err != nil {
		return fmt.Errorf("read mailing %s: %w", m.ID, err)
	}
	_, stopped := c.records.Stopped[m.ID]
	if status == cancelled && m.CancelPlanned { // also by a request whose response was lost
		status = "COMPLETED"
	} else if stopped {
		c.Findings.Add(Promise, "mailing %s was cancelled with 200 and is %s", m.ID, status)
	}
	if status != "COMPLETED" {
		c.Findings.Add(Lost, "mailing %s is still %s", m.ID, status)
		return nil
	}
	if accepted != len(m.People) || invalid != m.Invalid || duplicates != m.Repeats ||
		accepted != sent+failed+later+suppressed+expired+withdrawn+unknown {
		c.Findings.Add(InconsistentCounts, "mailing %s: %d rows, accepted %d, invalid %d, duplicates %d, sent %d, failed %d, invalid later %d, suppressed %d, expired %d, cancelled %d, unknown %d",
			m.ID, len(m.People), accepted, invalid, duplicates, sent, failed, later, suppressed, expired, withdrawn, unknown)
	}
	counts := map[string]int{"SENT": sent, "FAILED": failed, "INVALID": later, "SUPPRESSED": suppressed, "EXPIRED": expired, "CANCELLED": withdrawn}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(counts, seen.byStatus) || unknown != seen.unknown {
		c.Findings.Add(InconsistentCounts, "mailing %s has %v, unknown %d; its entries have %v, unknown %d", m.ID, counts, unknown, seen.byStatus, seen.unknown)
	}
	return nil
}
