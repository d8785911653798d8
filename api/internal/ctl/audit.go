package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/store"
)

func (c *control) audit() *cobra.Command {
	cmd := group("audit", "Tell what operators did, when and why",
		`Every change that an operator makes is written down in the commit of the change: who, by
his own word and by the database's, what, when and why; so is looking at addresses in full
(--reveal). What changed nothing, as pausing what is paused for that reason, is not. It is
kept for two years. What programs and tenants do stands elsewhere: in the emails' timelines,
and in the dead letters.`,
		"  gatewayctl audit list --since 24h")
	cmd.AddCommand(c.auditList())
	return cmd
}

type auditList struct {
	Entries []store.AuditEntry `json:"entries"`
	More    bool               `json:"more"`
}

func (c *control) auditList() *cobra.Command {
	var company, since, until string
	var f store.AuditFilter
	cmd := &cobra.Command{
		Use: "list", Short: "List what operators did, newest first",
		Example: `  gatewayctl audit list --since 24h
  gatewayctl audit list --company Acme --action company --json
  gatewayctl audit list --by ana --action key.revoke`,
		Args: needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			if err := checkLimit(f.Limit); err != nil {
				return nil, err
			}
			if c.operator != "" {
				return nil, usagef("--operator says who you are; --by chooses what one operator did")
			}
			now := time.Now()
			for flag, given := range map[string]struct {
				text string
				time **time.Time
			}{"since": {since, &f.Since}, "until": {until, &f.Until}} {
				if given.text == "" {
					continue
				}
				t, err := parseTime(flag, given.text, now)
				if err != nil {
					return nil, err
				}
				*given.time = &t
			}
			if company != "" {
				found, err := findCompany(ctx, s, company)
				if err != nil {
					return nil, err
				}
				f.Company = found.ID
			}
			limit := f.Limit
			f.Limit++ // one more tells whether there is one
			found, err := s.Audit(ctx, f)
			return auditList{Entries: found[:min(limit, len(found))], More: len(found) > limit}, err
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&company, "company", "", "only what is about one `COMPANY`, by id or exact name")
	flags.StringVar(&f.Operator, "by", "", "only what one `OPERATOR` did")
	flags.StringVar(&f.Action, "action", "", "only one `ACTION`, such as key.revoke, or all about one thing, such as key")
	flags.StringVar(&since, "since", "", "only since a `TIME`: 90m or 36h ago, or as in 2026-03-01T10:00:00-03:00")
	flags.StringVar(&until, "until", "", "only before a `TIME`")
	complete(cmd, "action", []string{
		"company", "company.create", "company.suspend", "company.resume", "key", "key.create", "key.rotate", "key.revoke", "domain", "domain.add", "domain.remove",
		"program", "program.allow", "program.revoke",
		"lane", "lane.pause", "lane.resume", "gate", "gate.hold", "gate.release", "email", "email.cancel", "email.retry", "email.reveal",
		"dlq", "dlq.retry", "dlq.retry-many", "dlq.discard", "dlq.discard-many", "dlq.reveal",
		"suppression", "suppression.add", "suppression.remove", "suppression.reveal",
		"person", "person.export", "person.erase", "person.erased", "encryption", "encryption.rotate",
	})
	c.completeCompanyFlag(cmd)
	return limited(cmd, &f.Limit)
}

func (v auditList) text(w io.Writer) {
	if len(v.Entries) == 0 {
		fmt.Fprintln(w, "There is nothing.")
		return
	}
	rows := [][]string{{"AT", "OPERATOR", "AS", "ACTION", "COMPANY", "WHY", "WHAT"}}
	for _, e := range v.Entries {
		rows = append(rows, []string{
			stamp(e.At), e.Operator, e.DatabaseRole, e.Action, companyOf(e), text(e.Reason), strings.TrimSpace(text(e.Subject) + " " + extras(e.Details)),
		})
	}
	table(w, "", rows)
	tellMore(w, v.More)
}

func companyOf(e store.AuditEntry) string {
	switch {
	case e.Company != nil:
		return *e.Company
	case e.CompanyID != nil && *e.CompanyID != uuid.Nil:
		return e.CompanyID.String()
	}
	return "-"
}

// extras are the details, in the order of their names.
func extras(raw json.RawMessage) string {
	var details map[string]json.RawMessage
	if json.Unmarshal(raw, &details) != nil {
		return ""
	}
	var parts []string
	for name, value := range details {
		parts = append(parts, name+"="+string(bytes.Trim(value, `"`)))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
