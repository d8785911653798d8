package judge

import (
	"context"
	"fmt"
	"strings"

	"email-gateway/scripts/chaos/load"
)

const mailingSQL = `
SELECT status, accepted, sent, failed, invalid_later, suppressed, expired, cancelled, unknown, invalid, duplicates
FROM mailings WHERE id = $1`

const entriesSQL = `SELECT id, email, status, outcome_unknown FROM mailing_entries WHERE mailing_id = $1`

// tryMailings: every good row of every file is one entry and one email, once.
func (j *Judge) tryMailings(ctx context.Context) error {
	for _, m := range j.notes.Mailings {
		seen, err := j.tryEntries(ctx, m)
		if err != nil {
			return err
		}
		if err := j.tryMailing(ctx, m, seen); err != nil {
			return err
		}
	}
	return nil
}

// entryCounts are a mailing's entries by what became of them.
type entryCounts struct {
	ended   map[string]int
	unknown int
}

func (j *Judge) tryEntries(ctx context.Context, m load.Mailing) (entryCounts, error) {
	counts := entryCounts{ended: make(map[string]int)}
	rows, err := j.stage.Database.QueryContext(ctx, entriesSQL, m.ID)
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
		if !m.People[address] {
			continue // a row that is no address keeps an entry that says so
		}
		j.Counts.Entries++
		if people[address] {
			j.Find(Sums, "mailing %s has two entries for one address", m.ID)
		}
		people[address] = true
		if status == "FAILED" && unknown {
			counts.unknown++
		} else {
			counts.ended[status]++
		}
		switch e := j.emails[id]; {
		case e == nil && m.Doomed && status == cancelled: // it was to become one
		case e == nil:
			j.Find(Lost, "entry %s of mailing %s is %s, and there is no email", id, m.ID, status)
		case e.status != status:
			j.Find(Sums, "entry %s is %s, its email %s", id, status, e.status)
		case e.mailing != m.ID.String() || !strings.EqualFold(e.to, address):
			j.Find(Sums, "entry %s is not its email's", id)
		}
	}
	if err := rows.Err(); err != nil {
		return counts, fmt.Errorf("read entries: %w", err)
	}
	if missing := len(m.People) - len(people); missing > 0 {
		j.Find(Lost, "mailing %s has no entries for %d of %d rows", m.ID, missing, len(m.People))
	}
	return counts, nil
}

func (j *Judge) tryMailing(ctx context.Context, m load.Mailing, seen entryCounts) error {
	var status string
	var accepted, sent, failed, later, suppressed, expired, withdrawn, unknown, invalid, duplicates int
	err := j.stage.Database.QueryRowContext(ctx, mailingSQL, m.ID).
		Scan(&status, &accepted, &sent, &failed, &later, &suppressed, &expired, &withdrawn, &unknown, &invalid, &duplicates)
	if err != nil {
		return fmt.Errorf("read mailing %s: %w", m.ID, err)
	}
	_, stopped := j.notes.Stopped[m.ID]
	if status == cancelled && m.Doomed { // also by a request whose answer was lost
		status = "COMPLETED"
	} else if stopped {
		j.Find(Promise, "mailing %s was cancelled with 200 and is %s", m.ID, status)
	}
	if status != "COMPLETED" {
		j.Find(Lost, "mailing %s is still %s", m.ID, status)
		return nil
	}
	if accepted != len(m.People) || invalid != m.Invalid || duplicates != m.Repeats ||
		accepted != sent+failed+later+suppressed+expired+withdrawn+unknown {
		j.Find(Sums, "mailing %s: %d rows, accepted %d, invalid %d, duplicates %d, sent %d, failed %d, invalid later %d, suppressed %d, expired %d, cancelled %d, unknown %d",
			m.ID, len(m.People), accepted, invalid, duplicates, sent, failed, later, suppressed, expired, withdrawn, unknown)
	}
	if sent != seen.ended["SENT"] || failed != seen.ended["FAILED"] || unknown != seen.unknown || withdrawn != seen.ended["CANCELLED"] {
		j.Find(Sums, "mailing %s says sent %d, failed %d, unknown %d, cancelled %d; its entries say %v, unknown %d",
			m.ID, sent, failed, unknown, withdrawn, seen.ended, seen.unknown)
	}
	return nil
}
