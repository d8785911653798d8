package program

import (
	"context"

	"github.com/google/uuid"

	"email-gateway/api/internal/ctl/command"
	"email-gateway/api/internal/ctl/operator"
	"email-gateway/shared/store"
)

func completeProgramRoles(c *command.Invocation) command.Completion {
	return operator.Complete(c, func(ctx context.Context, s *store.Store) []string {
		roles, err := s.ProgramRoles(ctx)
		if err != nil {
			return nil
		}
		return roles
	})
}

func completePrograms(c *command.Invocation) command.Completion {
	return operator.Complete(c, func(ctx context.Context, s *store.Store) (roles []string) {
		all, err := s.Programs(ctx, uuid.Nil, "")
		if err != nil {
			return nil
		}
		for _, p := range all {
			roles = append(roles, p.Role+"\t"+p.Company)
		}
		return roles
	})
}
