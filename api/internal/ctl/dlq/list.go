package dlq

import (
	"context"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/api/internal/ctl/output"
	"email-gateway/shared/store"
	"email-gateway/shared/store/deadletter"
)

type deadLetterList struct {
	Letters []deadLetterView `json:"deadLetters"`
	More    bool             `json:"more"`
}

func listCommand(c *command.Invocation) *cobra.Command {
	var choice deadLetterChoice
	var all, reveal bool
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first",
		Long: `Lists open dead letters, newest first; --all includes resolved ones. Addresses are masked;
--reveal shows them and writes an audit entry.`,
		Example: `  gatewayctl dlq list
  gatewayctl dlq list --company Acme --code SES_MESSAGE_REJECTED --since 2h --limit 500 --json`,
		Args: command.ExactArgs(),
		RunE: operator.Run(c, func(ctx context.Context, s *store.Store, _ []string) (output.Result, error) {
			if err := command.CheckLimit(limit); err != nil {
				return nil, err
			}
			if err := operator.RecordReveal(ctx, c, s, reveal, "dlq", uuid.Nil, ""); err != nil {
				return nil, err
			}
			return listDeadLetters(ctx, s, &choice, all, limit, !reveal)
		}),
	}
	addFlags(c, cmd, &choice)
	cmd.Flags().BoolVar(&all, "all", false, "include resolved dead letters")
	command.LimitFlag(cmd, &limit)
	cmd.Flags().BoolVar(&reveal, "reveal", false, "show addresses in full; writes an audit entry")
	return cmd
}

func listDeadLetters(ctx context.Context, s *store.Store, choice *deadLetterChoice, all bool, limit int, masked bool) (output.Result, error) {
	company, filter, err := choice.filter(ctx, s)
	if err != nil {
		return nil, err
	}
	names, err := companyNames(ctx, s)
	if err != nil {
		return nil, err
	}
	q := deadletter.LetterQuery{LetterFilter: filter}
	if !all {
		q.Resolved = new(bool)
	}
	list := deadLetterList{Letters: []deadLetterView{}}
	for {
		q.Limit = limit - len(list.Letters)
		var page deadletter.LetterPage
		if company == nil {
			page, err = s.ListAllDeadLetters(ctx, q)
		} else {
			page, err = s.ListDeadLetters(ctx, *company, q)
		}
		if err != nil {
			return nil, err
		}
		for _, l := range page.Letters {
			list.Letters = append(list.Letters, viewDeadLetter(l, names, masked))
		}
		q.Cursor = page.Next
		list.More = page.Next != (deadletter.LetterCursor{})
		if !list.More || len(list.Letters) == limit {
			return list, nil
		}
	}
}

func (v deadLetterList) WriteText(w io.Writer) {
	if len(v.Letters) == 0 {
		fmt.Fprintln(w, "No dead letters found.")
		return
	}
	rows := [][]string{{"ID", "CREATED", "COMPANY", "TARGET", "REASON", "TRIES", "RECIPIENT", "STATE"}}
	for _, l := range v.Letters {
		rows = append(rows, []string{l.ID.String(), output.Timestamp(l.CreatedAt), l.Company, l.Target, l.Reason, fmt.Sprint(l.Attempts), l.Recipient, l.state()})
	}
	output.Table(w, "", rows)
	output.PrintMore(w, v.More)
}
