package pipeline

import (
	"email-gateway/shared/email"
	"email-gateway/shared/store"
)

// The two halves of the fence: a task of an email that is done or in other hands leaves
// at once, and only the task that Postgres lets win goes on to the provider. They have a file
// of their own, for which a test builds another one and shows that the chaos run finds it out.

// mayClaim says that the email is there for a worker to take.
func mayClaim(s email.Status) bool { return s.Claimable() }

// isMine says that the claim was won.
func isMine(claim store.Advanced) bool { return claim.Applied }
