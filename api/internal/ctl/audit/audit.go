// Package audit implements gatewayctl audit, which shows operators the audit log.
package audit

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

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	auditstore "email-gateway/shared/store/audit"
)

// Command returns the command `gatewayctl audit` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("audit", "Show what operators changed, when and why",
		`Every change that an operator makes writes an audit entry in the same transaction: the
operator (as given by --operator, and the database role), the action, the time and the
reason. Showing addresses in full (--reveal) writes one too. A command that changes nothing,
such as pausing a lane that is already paused for the same reason, writes none. Entries are
kept for two years. Actions of programs and tenants are not audited here: see the emails'
timelines and the dead letters.`,
		"  gatewayctl audit list --since 24h")
	cmd.AddCommand(listCommand(c))
	return cmd
}

type auditList struct {
	Entries []auditstore.Entry `json:"entries"`
	More    bool               `json:"more"`
}

func listCommand(c *command.Invocation) *cobra.Command {
	var company, since, until string
	var f auditstore.Filter
	cmd := &cobra.Command{
		Use: "list", Short: "List audit entries, newest first",
		Example: `  gatewayctl audit list --since 24h
  gatewayctl audit list --company Acme --action company --json
  gatewayctl audit list --by ana --action key.revoke`,
		Args: command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			if err := command.CheckLimit(f.Limit); err != nil {
				return nil, err
			}
			if c.Operator != "" {
				return nil, command.Usagef("--operator names the person running this command; use --by to filter by operator")
			}
			now := time.Now()
			for flag, given := range map[string]struct {
				text string
				time **time.Time
			}{"since": {since, &f.Since}, "until": {until, &f.Until}} {
				if given.text == "" {
					continue
				}
				t, err := command.ParseTime(flag, given.text, now)
				if err != nil {
					return nil, err
				}
				*given.time = &t
			}
			if company != "" {
				found, err := operator.FindCompany(ctx, s, company)
				if err != nil {
					return nil, err
				}
				f.Company = found.ID
			}
			limit := f.Limit
			f.Limit++ // one more, to learn whether the list goes on
			found, err := s.Audit(ctx, f)
			return auditList{Entries: found[:min(limit, len(found))], More: len(found) > limit}, err
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&company, "company", "", "only entries about this `COMPANY` (id or exact name)")
	flags.StringVar(&f.Operator, "by", "", "only entries of this `OPERATOR`")
	flags.StringVar(&f.Action, "action", "", "only this `ACTION`, such as key.revoke, or all actions of a group, such as key")
	flags.StringVar(&since, "since", "", "only entries since this `TIME`: 90m or 36h ago, or 2026-03-01T10:00:00-03:00")
	flags.StringVar(&until, "until", "", "only entries before this `TIME`")
	command.CompleteFlag(cmd, "action", []string{
		"company", "company.create", "company.suspend", "company.resume", "company.resume-mailings", "company.quota", "company.retention", "company.reputation", "key", "key.create", "key.rotate", "key.revoke", "domain", "domain.add", "domain.remove",
		"program", "program.allow", "program.revoke",
		"installation", "installation.detach", "mailing", "mailing.cancel",
		"lane", "lane.pause", "lane.resume", "gate", "gate.hold", "gate.release", "email", "email.cancel", "email.retry", "email.reveal",
		"dlq", "dlq.retry", "dlq.retry-many", "dlq.discard", "dlq.discard-many", "dlq.reveal",
		"webhook", "webhook.disable", "webhook.enable", "suppression", "suppression.add", "suppression.remove", "suppression.reveal",
		"person", "person.export", "person.erase", "person.erased", "encryption", "encryption.rotate",
	})
	operator.CompleteCompanyFlag(c, cmd)
	return command.LimitFlag(cmd, &f.Limit)
}

func (v auditList) WriteText(w io.Writer) {
	if len(v.Entries) == 0 {
		fmt.Fprintln(w, "No audit entries.")
		return
	}
	rows := [][]string{{"AT", "OPERATOR", "AS", "ACTION", "COMPANY", "WHY", "WHAT"}}
	for _, e := range v.Entries {
		rows = append(rows, []string{
			output.Timestamp(e.At), e.Operator, e.DatabaseRole, e.Action, companyOf(e), output.Optional(e.Reason), strings.TrimSpace(output.Optional(e.Subject) + " " + formatDetails(e.Details)),
		})
	}
	output.Table(w, "", rows)
	output.PrintMore(w, v.More)
}

func companyOf(e auditstore.Entry) string {
	switch {
	case e.Company != nil:
		return *e.Company
	case e.CompanyID != nil && *e.CompanyID != uuid.Nil:
		return e.CompanyID.String()
	}
	return "-"
}

// formatDetails formats the details as name=value pairs, sorted by name.
func formatDetails(raw json.RawMessage) string {
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
