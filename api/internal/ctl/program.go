package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/shared/store"
)

// allPrograms is the role that every program's role is a member of.
const allPrograms = "gateway_program"

func (c *control) program() *cobra.Command {
	cmd := group("program", "Say which programs may write a company's emails in the database",
		`A program that keeps its own tables in the gateway's database can write an email in the
transaction that writes what the email is about, with functions or with the Go package
shared/outbox (schema/README.md). Its database role has to be a member of gateway_program,
and to be allowed for each company whose emails it writes. What it may do is looked up at
each call, so that a change counts at once.`,
		`  gatewayctl program allow recruiting --company Acme
  gatewayctl program list`)
	cmd.AddCommand(c.programList(), c.programAllow(), c.programRevoke())
	return cmd
}

// programView is a leave with what keeps it from being of use.
type programView struct {
	store.Program
	Problem string `json:"problem,omitempty"`
}

func viewProgram(p store.Program) programView {
	v := programView{Program: p}
	switch {
	case !p.Exists:
		v.Problem = "there is no such role"
	case p.Creates:
		v.Problem = "it is refused: REVOKE CREATE ON SCHEMA public FROM " + p.Role + ", or from PUBLIC"
	case !p.Granted:
		v.Problem = "it may not call the functions: GRANT " + allPrograms + " TO " + p.Role
	}
	return v
}

type programList struct {
	Programs []programView `json:"programs"`
}

func (c *control) programList() *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use: "list [--company COMPANY]", Short: "List the programs that may write emails in the database",
		Long: `Lists who may write which company's emails, and says of each what Postgres would refuse it
for. The tables' owner, and who is a member of that role, may write everybody's without
being here.`,
		Example: "  gatewayctl program list\n  gatewayctl program list --company Acme --json",
		Args:    needs(),
		RunE: c.run(func(ctx context.Context, s *store.Store, _ []string) (answer, error) {
			company := uuid.Nil
			if given != "" {
				found, err := findCompany(ctx, s, given)
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
	cmd.Flags().StringVar(&given, "company", "", "only those of one `COMPANY`, by id or exact name")
	c.completeCompanyFlag(cmd)
	return cmd
}

func (v programList) text(w io.Writer) {
	if len(v.Programs) == 0 {
		fmt.Fprintln(w, "No program writes emails in the database, but for the tables' owner.")
		return
	}
	rows := [][]string{{"ROLE", "COMPANY", "ALLOWED AT", "STATE"}}
	for _, p := range v.Programs {
		state := "works"
		if p.Problem != "" {
			state = p.Problem
		}
		rows = append(rows, []string{p.Role, p.Company, stamp(p.CreatedAt), state})
	}
	table(w, "", rows)
}

// programAllowed is a leave that was given.
type programAllowed struct{ programView }

func (c *control) programAllow() *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use: "allow ROLE --company COMPANY", Short: "Let a database role write a company's emails",
		Long: `Lets the role, and those who are members of it, write, move and withdraw the company's
emails in their own transactions. The role is there already: whoever administers Postgres
makes it, with CREATE ROLE … LOGIN IN ROLE gateway_program. It is given as Postgres writes
it, in lower case unless it was quoted. Allowing what is allowed changes nothing.`,
		Example: "  gatewayctl program allow recruiting --company Acme --reason 'reminders of interviews'",
		Args:    needs("ROLE"), ValidArgsFunction: c.completeProgramRoles,
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			role := args[0]
			if role == allPrograms {
				return nil, usagef("%s is every program: name the role of one", allPrograms)
			}
			by, err := c.who(reason)
			if err != nil {
				return nil, err
			}
			company, err := findCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			err = s.AllowProgram(ctx, by, company.ID, role)
			if errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("there is no database role %q: whoever administers Postgres makes it, with CREATE ROLE … LOGIN IN ROLE %s", role, allPrograms)
			}
			if err != nil {
				return nil, err
			}
			stands, err := s.Programs(ctx, company.ID, role)
			if err == nil && len(stands) == 0 {
				err = errors.New("it was revoked in this very moment")
			}
			if err != nil {
				return nil, err
			}
			return programAllowed{viewProgram(stands[0])}, nil
		}),
	}
	return c.ofCompany(because(cmd, &reason, false), &given)
}

func (v programAllowed) text(w io.Writer) {
	fmt.Fprintf(w, "%s may write emails of %s.\n", printable(v.Role), printable(v.Company))
	if v.Problem != "" {
		fmt.Fprintf(w, "One thing is in the way: %s\n", printable(v.Problem))
	}
}

// programRevoked is a leave that was taken back.
type programRevoked struct {
	Role      string    `json:"role"`
	CompanyID uuid.UUID `json:"companyId"`
	Company   string    `json:"company"`
}

func (c *control) programRevoke() *cobra.Command {
	var given, reason string
	cmd := &cobra.Command{
		Use: "revoke ROLE --company COMPANY --reason WHY", Short: "Stop a database role from writing a company's emails",
		Long: `Refuses the role's further calls for the company. What it has committed is sent; to stop
that too, cancel its emails.`,
		Example: "  gatewayctl program revoke recruiting --company Acme --reason 'the program is switched off'",
		Args:    needs("ROLE"), ValidArgsFunction: c.completePrograms,
		RunE: c.run(func(ctx context.Context, s *store.Store, args []string) (answer, error) {
			by, err := c.whoAndWhy(reason)
			if err != nil {
				return nil, err
			}
			company, err := findCompany(ctx, s, given)
			if err != nil {
				return nil, err
			}
			err = s.RevokeProgram(ctx, by, company.ID, args[0])
			if errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("no role %q may write emails of %s: `gatewayctl program list --company %s` shows those that may",
					args[0], company.Name, shellWord(company.Name))
			}
			return programRevoked{Role: args[0], CompanyID: company.ID, Company: company.Name}, err
		}),
	}
	return c.ofCompany(because(cmd, &reason, true), &given)
}

func (v programRevoked) text(w io.Writer) {
	fmt.Fprintf(w, "%s may no longer write emails of %s. What it has committed is sent.\n", printable(v.Role), printable(v.Company))
}
