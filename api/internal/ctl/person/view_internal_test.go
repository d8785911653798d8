package person

import (
	"strings"
	"testing"

	"email-gateway/api/internal/privacy"
)

// Each output says which numbers were not followed, and how to reach their rows.
func TestPerson_SharedNumbers(t *testing.T) {
	t.Parallel()
	var exported, receipt strings.Builder
	exportedTo{sharedNumbers: []string{"1a2b3c4d"}}.WriteText(&exported)
	erased{privacy.Erased{Receipt: privacy.Receipt{SharedNumbers: []string{"1a2b3c4d"}}}}.WriteText(&receipt)
	for name, text := range map[string]string{
		"export": exported.String(), "receipt": receipt.String(), "preview": unconfirmed(privacy.Preview{KnownBy: privacy.KnownBy{SharedNumbers: []string{"1a2b3c4d"}}}).Error(),
	} {
		if !strings.Contains(text, "1a2b3c4d") || !strings.Contains(text, "--cpf-cnpj") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// An erasure is incomplete while Redis may hold a task with the person's address.
func TestPersonErase_OpenTask(t *testing.T) {
	t.Parallel()
	if err := erasureFailure(1); err == nil || !strings.Contains(err.Error(), "1 task may still be in Redis") {
		t.Errorf("got %v", err)
	}
	if err := erasureFailure(0); err != nil {
		t.Error(err)
	}
}

// erasureFailure returns the error of an erasure that is complete except for tasks in Redis.
func erasureFailure(openTasks int) error {
	v := erased{}
	v.Receipt.Tasks.Open = openTasks
	return v.Failure()
}
