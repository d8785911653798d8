package asynqueue

import (
	"encoding/json"
	"fmt"

	"email-gateway/shared/email"
)

// hidden replaces a text that may contain personal data.
const hidden = "(hidden)"

// maskPayload formats a task for the dashboard, with the fields that identify the email in the database and without personal
// data.
func maskPayload(_ string, payload []byte) string {
	job, err := email.DecodeSendJob(payload)
	if err != nil {
		return fmt.Sprintf("(unreadable, %d bytes)", len(payload))
	}
	job.RequestID = email.MaskText(job.RequestID)
	job.To = maskAddress(job.To)
	job.CC, job.BCC = each(job.CC, maskAddress), each(job.BCC, maskAddress)
	job.ReplyTo = maskAddress(job.ReplyTo)
	job.Subject = hide(job.Subject)
	if n := len(job.Headers); n > 0 {
		job.Headers = map[string]string{hidden: fmt.Sprint(n)}
	}
	// Tenants use CPFs as ids and names as tags, despite the contract.
	job.Tags = each(job.Tags, hide)
	r := &job.Recipient
	r.ExternalID = hide(r.ExternalID)
	r.CPFCNPJHash = email.MaskHash(r.CPFCNPJHash)
	r.RazaoSocial, r.Nome = hide(r.RazaoSocial), hide(r.Nome)
	r.Email = maskAddress(r.Email)
	masked, err := json.Marshal(job)
	if err != nil {
		return hidden
	}
	return string(masked)
}

func maskAddress(address string) string {
	if address == "" {
		return ""
	}
	return email.MaskAddress(address)
}

func hide(text string) string {
	if text == "" {
		return ""
	}
	return hidden
}

func each(texts []string, mask func(string) string) []string {
	masked := make([]string, len(texts))
	for i, text := range texts {
		masked[i] = mask(text)
	}
	return masked
}
