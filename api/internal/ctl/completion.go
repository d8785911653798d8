package ctl

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/client"
	"email-gateway/shared/store"
)

// completionTimeout limits how long a shell completion may take; then nothing is
// offered.
const completionTimeout = 2 * time.Second

// offered is how many ids are offered, newest first.
const offered = 20

// completion returns words that begin with what is typed. A word may have a
// description after a tab.
type completion func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// offer completes the first argument or a flag. Errors are dropped: a shell completion
// has no place to report them.
func offer(flag bool, words func(ctx context.Context, cmd *cobra.Command) []string) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !flag {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		var fit []string
		for _, word := range words(ctx, cmd) {
			if strings.HasPrefix(word, typed) {
				fit = append(fit, word)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}

// fromStore queries the database if DATABASE_URL is set.
func (c *control) fromStore(ctx context.Context, ask func(s *store.Store) []string) []string {
	address := c.Getenv("DATABASE_URL")
	if address == "" {
		return nil
	}
	o := c.storeOptions(1)
	o.StatementTimeout = completionTimeout
	s, err := store.Open(ctx, address, o)
	if err != nil {
		return nil
	}
	defer s.Close()
	return ask(s)
}

func (c *control) companyNames(ctx context.Context) []string {
	return c.fromStore(ctx, func(s *store.Store) (names []string) {
		all, err := s.Companies(ctx)
		if err != nil {
			return nil
		}
		for _, company := range all {
			names = append(names, company.Name+"\t"+companyState(company))
		}
		return names
	})
}

func (c *control) completeCompanies() completion {
	return offer(false, func(ctx context.Context, _ *cobra.Command) []string { return c.companyNames(ctx) })
}

func (c *control) completeCompanyFlag(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("company", offer(true, func(ctx context.Context, _ *cobra.Command) []string {
		return c.companyNames(ctx)
	}))
}

func (c *control) completeKeys() completion {
	return offer(false, func(ctx context.Context, _ *cobra.Command) []string {
		return c.fromStore(ctx, func(s *store.Store) (ids []string) {
			all, err := s.Companies(ctx)
			if err != nil {
				return nil
			}
			for _, company := range all {
				keys, err := s.APIKeys(ctx, company.ID)
				if err != nil {
					return nil
				}
				for _, k := range keys {
					if !k.Revoked(time.Now()) {
						ids = append(ids, k.KeyID+"\t"+company.Name+", "+k.Name)
					}
				}
			}
			return ids
		})
	})
}

func (c *control) completeProgramRoles() completion {
	return offer(false, func(ctx context.Context, _ *cobra.Command) []string {
		return c.fromStore(ctx, func(s *store.Store) []string {
			roles, err := s.ProgramRoles(ctx)
			if err != nil {
				return nil
			}
			return roles
		})
	})
}

func (c *control) completePrograms() completion {
	return offer(false, func(ctx context.Context, _ *cobra.Command) []string {
		return c.fromStore(ctx, func(s *store.Store) (roles []string) {
			all, err := s.Programs(ctx, uuid.Nil, "")
			if err != nil {
				return nil
			}
			for _, p := range all {
				roles = append(roles, p.Role+"\t"+p.Company)
			}
			return roles
		})
	})
}

func (c *control) completeDeadLetters() completion {
	return offer(false, func(ctx context.Context, _ *cobra.Command) []string {
		return c.fromStore(ctx, func(s *store.Store) (ids []string) {
			page, err := s.ListAllDeadLetters(ctx, store.LetterQuery{Resolved: new(bool), Limit: offered})
			if err != nil {
				return nil
			}
			for _, l := range page.Letters {
				ids = append(ids, l.ID.String()+"\t"+l.Reason+", "+stamp(l.CreatedAt))
			}
			return ids
		})
	})
}

// fromAPI returns the newest entries of a tenant's list if API_KEY is set.
func fromAPI[T any](ctx context.Context, c *control, path, field string, word func(T) string) []string {
	if c.Getenv("API_KEY") == "" {
		return nil
	}
	api, err := client.New(cmp.Or(c.Getenv("API_URL"), defaultAPI), c.Getenv("API_KEY"))
	if err != nil {
		return nil
	}
	defer api.Close()
	found, _, err := pages[T](ctx, api, path, field, url.Values{}, offered)
	if err != nil {
		return nil
	}
	var words []string
	for _, row := range found {
		words = append(words, word(row))
	}
	return words
}

func (c *control) completeMailings() completion {
	return offer(false, func(ctx context.Context, _ *cobra.Command) []string {
		return fromAPI(ctx, c, mailingPath, "mailings", func(m mailingView) string {
			return m.ID.String() + "\t" + m.Filename + ", " + string(m.Status)
		})
	})
}

// completeEmails offers the tenant's newest emails. It offers none to operators, whose
// list would span all companies.
func (c *control) completeEmails() completion {
	return offer(false, func(ctx context.Context, _ *cobra.Command) []string {
		return fromAPI(ctx, c, emailPath+"s", "emails", func(e emailSummary) string {
			return e.ID.String() + "\t" + string(e.Status) + ", " + printable(e.Subject)
		})
	})
}
