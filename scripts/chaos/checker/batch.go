package checker

import "email-gateway/scripts/chaos/load"

// Batches are the batches of emails.
type Batches struct {
	Accepted int `json:"accepted"` // with response 202
	Partial  int `json:"partial"`  // of these, with mode=partial
	Refused  int `json:"refused"`  // strict ones with an invalid email
	Unclear  int `json:"unclear"`  // not repeated after the lack of a 202
	Stored   int `json:"stored"`   // of these, stored nevertheless
	Emails   int `json:"emails"`   // of all stored batches
}

// checkBatches checks that all valid emails of a batch are stored or none, as its response says, and
// none of the others.
func (c *Checker) checkBatches() {
	rows := c.singleRows()
	count := func(serials []int) (n int) {
		for _, serial := range serials {
			n += min(1, rows[load.Address(serial)])
		}
		return n
	}
	for _, b := range c.records.Batches {
		stored := count(b.Valid)
		c.Counts.Batches.add(b, stored)
		if n := count(b.Invalid); n > 0 {
			c.Findings.Add(Promise, "%s was %s, and %d of its %d invalid emails are stored", b.Name, b.Outcome, n, len(b.Invalid))
		}
		switch {
		case stored != 0 && stored != len(b.Valid):
			c.Findings.Add(PartOfBatch, "%s was %s, and %d of its %d valid emails are stored", b.Name, b.Outcome, stored, len(b.Valid))
		case b.Outcome == load.AcceptedBatch && stored == 0:
			c.Findings.Add(Lost, "%s was accepted, and none of its %d emails is stored", b.Name, len(b.Valid))
		case b.Outcome == load.RefusedBatch && stored > 0:
			c.Findings.Add(Promise, "%s was refused, and its %d valid emails are stored", b.Name, stored)
		}
	}
}

func (n *Batches) add(b load.Batch, stored int) {
	n.Emails += stored
	switch b.Outcome {
	case load.AcceptedBatch:
		n.Accepted++
		if b.Partial {
			n.Partial++
		}
	case load.RefusedBatch:
		n.Refused++
	case load.UnclearBatch:
		n.Unclear++
		n.Stored += min(1, stored)
	}
}
