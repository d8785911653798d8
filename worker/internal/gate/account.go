package gate

import (
	"context"
	"time"
)

// Account takes what the provider says of the account: the code of why it accepts no
// email, or "" when it does. A refusal parks sending before any email meets it; the end
// of the refusal resumes sending, unless an email's own answer has parked it since: the
// account may be fine while one of its parts refuses.
//
// Each process acts on a refusal once, until the refusal ends or its code changes. So if a
// probe passes although the account still claims to refuse, this process believes the probe.
// That is kept in memory: the open gate keeps no code, so a process that first reads the
// refusal after the probe has passed, or starts then, parks sending once more, until the
// next probe passes.
//
// It is not safe for concurrent use: one loop reads the account.
func (g *Gate) Account(ctx context.Context, refusal string) {
	switch refusal {
	case "":
		g.accountAccepts(ctx)
	case g.refused:
	default:
		g.accountRefuses(ctx, refusal)
	}
}

func (g *Gate) accountRefuses(ctx context.Context, code string) {
	shut, err := g.store.ShutGateByAccount(ctx, code, g.instance)
	if err != nil {
		g.log.Log(ctx, levelOf(err), "gate not shut, the next reading of the account tries again", "code", code, "error", err)
		return
	}
	g.refused = code
	if shut {
		g.metrics.shuts.WithLabelValues(code).Inc()
		g.log.Error("sending parked: the provider's account accepts no email. Nothing passes but a probe every few seconds, until the account or a probe says otherwise",
			"code", code)
	}
}

func (g *Gate) accountAccepts(ctx context.Context) {
	g.refused = ""
	was, opened, err := g.store.OpenGateByAccount(ctx, g.instance)
	switch {
	case err != nil:
		g.log.Log(ctx, levelOf(err), "gate not opened, the next probe or reading of the account tries again", "error", err)
	case opened:
		g.log.Info("sending goes on: the provider's account accepts email again", "code", was.Reason, "parked", was.After.Round(time.Millisecond).String())
	}
}
