// Package program implements gatewayctl program: operators allow programs to write a company's
// emails in the database.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/tenant"
)

// allPrograms is the role that every program's role is a member of.
const allPrograms = "gateway_program"

// Command returns the command `gatewayctl program` with its subcommands.
func Command(c *command.Invocation) *cobra.Command {
	cmd := command.Group("program", "Manage which programs may write a company's emails in the database",
		`A program that keeps its own tables in the gateway's database can write an email in the same
transaction as its own rows, with SQL functions or with the Go package shared/outbox
(schema/README.md). Its database role must be a member of gateway_program, and must be allowed
for each company whose emails it writes. Permissions are checked at each call, so a change
takes effect immediately.`,
		`  gatewayctl program allow recruiting --company Acme
  gatewayctl program list`)
	cmd.AddCommand(listCommand(c), allowCommand(c), revokeCommand(c))
	return cmd
}

// programView is a grant, with the problem that prevents its use or makes it unsafe, if any.
type programView struct {
	tenant.Program
	Problem string `json:"problem,omitempty"`
}

func viewProgram(p tenant.Program) programView {
	v := programView{Program: p}
	switch {
	case !p.Exists:
		v.Problem = "the role does not exist"
	case p.Creates:
		v.Problem = "its calls are rejected: REVOKE CREATE ON SCHEMA public FROM " + p.Role + ", or from PUBLIC"
	case !p.Granted:
		v.Problem = "it cannot call the functions: GRANT " + allPrograms + " TO " + p.Role
	case p.CreatesSchemas:
		v.Problem = "it works, but may create schemas: REVOKE CREATE ON DATABASE … FROM " + p.Role + ", or from PUBLIC"
	}
	return v
}

type programList struct {
	Programs []programView `json:"programs"`
}

func listCommand(c *command.Invocation) *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use: "list [--company COMPANY]", Short: "List the programs that may write emails in the database",
		Long: `Lists which program may write which company's emails, what would make Postgres reject its
calls, and whether it may create schemas, which no program needs. The owner of the tables and
members of that role may write every company's emails without being listed.`,
		Example: "  gatewayctl program list\n  gatewayctl program list --company Acme --json",
		Args:    command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			company := uuid.Nil
			if given != "" {
				found, err := operator.FindCompany(ctx, s, given)
				if err != nil {
					return nil, err
				}
				company = found.ID
			}
			found, err := s.Programs(ctx, company, "")
			list := programList{Programs: []programView{}}
			for _, p := range found {
				list.Programs = append(list.Programs, viewProgram(p))
			}
			return list, err
		}),
	}
	cmd.Flags().StringVar(&given, "company", "", "only programs of this `COMPANY` (id or exact name)")
	operator.CompleteCompanyFlag(c, cmd)
	return cmd
}

func (v programList) WriteText(w io.Writer) {
	if len(v.Programs) == 0 {
		fmt.Fprintln(w, "No program may write emails in the database, except the owner of the tables.")
		return
	}
	rows := [][]string{{"ROLE", "COMPANY", "ALLOWED AT", "STATE"}}
	for _, p := range v.Programs {
		state := "ok"
		if p.Problem != "" {
			state = p.Problem
		}
		rows = append(rows, []string{p.Role, p.Company, output.Timestamp(p.CreatedAt), state})
	}
	output.Table(w, "", rows)
}

// programAllowed is a new grant.
type programAllowed struct{ programView }

func allowCommand(c *command.Invocation) *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use: "allow ROLE --company COMPANY", Short: "Allow a database role to write a company's emails",
		Long: `Allows the role and its members to write, reschedule and cancel the company's emails in their
own transactions. The role must exist: the administrator of Postgres creates it with CREATE
ROLE … LOGIN IN ROLE gateway_program. Give its name as Postgres stores it: in lower case
unless it was quoted. Allowing an allowed role changes nothing.`,
		Example: "  gatewayctl program allow recruiting --company Acme --reason 'reminders of interviews'",
		Args:    command.ExactArgs("ROLE"), ValidArgsFunction: completeProgramRoles(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			role := args[0]
			if role == allPrograms {
				return nil, command.Usagef("%s is the role of all programs: give the role of one program", allPrograms)
			}
			by, err := operator.Identity(c, reason)
			if err != nil {
				return nil, err
			}
			company, err := operator.FindCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			err = s.AllowProgram(ctx, by, company.ID, role)
			if errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("database role %q does not exist: the administrator of Postgres creates it with CREATE ROLE … LOGIN IN ROLE %s", role, allPrograms)
			}
			if err != nil {
				return nil, err
			}
			programs, err := s.Programs(ctx, company.ID, role)
			if err == nil && len(programs) == 0 {
				err = errors.New("it was revoked concurrently")
			}
			if err != nil {
				return nil, err
			}
			return programAllowed{viewProgram(programs[0])}, nil
		}),
	}
	return operator.CompanyFlag(c, operator.ReasonFlag(cmd, &reason, false), &given)
}

func (v programAllowed) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s may write emails of %s.\n", output.Printable(v.Role), output.Printable(v.Company))
	if v.Problem != "" {
		fmt.Fprintf(w, "Problem: %s\n", output.Printable(v.Problem))
	}
}

// programRevoked is a revoked grant.
type programRevoked struct {
	Role      string    `json:"role"`
	CompanyID uuid.UUID `json:"companyId"`
	Company   string    `json:"company"`
}

func revokeCommand(c *command.Invocation) *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use: "revoke ROLE --company COMPANY --reason WHY", Short: "Stop a database role from writing a company's emails",
		Long: `Rejects further calls of the role for the company. Emails that it has committed are still
sent; cancel them to stop that too.`,
		Example: "  gatewayctl program revoke recruiting --company Acme --reason 'the program is switched off'",
		Args:    command.ExactArgs("ROLE"), ValidArgsFunction: completePrograms(c),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, args []string) (output.Result, error) {
			by, err := operator.IdentityWithReason(c, reason)
			if err != nil {
				return nil, err
			}
			company, err := operator.FindCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			err = s.RevokeProgram(ctx, by, company.ID, args[0])
			if errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("role %q may not write emails of %s: run `gatewayctl program list --company %s` to see which may",
					args[0], company.Name, output.ShellWord(company.Name))
			}
			return programRevoked{Role: args[0], CompanyID: company.ID, Company: company.Name}, err
		}),
	}
	return operator.CompanyFlag(c, operator.ReasonFlag(cmd, &reason, true), &given)
}

func (v programRevoked) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s may no longer write emails of %s. Emails that it has committed are still sent.\n", output.Printable(v.Role), output.Printable(v.Company))
}
