package accept

import (
	"encoding/json"

	"email-gateway/api/internal/httpapi/reqctx"
)

// Paths of accepted objects, which the id follows.
const (
	EmailPath     = "/v1/email/"
	RecipientPath = "/v1/recipients/"
	mailingPath   = "/v1/mailings/"
)

// RecordIDs records the ids of the objects in a response, and the path of a single one.
func RecordIDs(v *reqctx.State, answer []byte) {
	var made struct {
		OutboxID    string `json:"outboxId"`
		RecipientID string `json:"id"`
		MailingID   string `json:"mailingId"`
		Emails      []struct {
			OutboxID string `json:"outboxId"`
		} `json:"emails"`
	}
	if json.Unmarshal(answer, &made) != nil {
		return
	}
	for _, item := range made.Emails {
		if item.OutboxID != "" { // it was not rejected
			v.OutboxIDs = append(v.OutboxIDs, item.OutboxID)
		}
	}
	switch {
	case made.OutboxID != "":
		v.OutboxID, v.Location = made.OutboxID, EmailPath+made.OutboxID
	case made.RecipientID != "":
		v.Location = RecipientPath + made.RecipientID
	case made.MailingID != "":
		v.MailingID, v.Location = made.MailingID, mailingPath+made.MailingID
	}
}
