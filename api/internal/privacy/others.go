package privacy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"email-gateway/shared/email"
)

// withoutOthers removes the recipients that the person was not shown from an email's row, log or
// dead letter: those in bcc, and those in the timeline and the errors. The recipients in cc are
// kept. In the cell of an invalid mailing entry it masks all addresses, unless the cell is the
// person's address.
func (p *subject) withoutOthers(columns map[string]json.RawMessage) error {
	var payload map[string]json.RawMessage
	if err := json.Unmarshal(orNull(columns["payload"]), &payload); err != nil {
		return fmt.Errorf("read a payload: %w", err)
	}
	own, masked := slices.Clone(p.Addresses), []string{"events", "error_reason", "last_error"}
	for _, column := range []json.RawMessage{columns["recipient"], columns["email"], payload["to"]} {
		var address *string
		if err := json.Unmarshal(orNull(column), &address); err != nil {
			return fmt.Errorf("read an address: %w", err)
		}
		if address != nil {
			own = append(own, strings.ToLower(*address))
		}
	}
	var bcc []string
	if err := json.Unmarshal(orNull(payload["bcc"]), &bcc); err != nil {
		return fmt.Errorf("read bcc: %w", err)
	}
	if bcc != nil {
		// Marshalling cannot fail here and below: the values were JSON or consist of strings.
		payload["bcc"], _ = json.Marshal(slices.DeleteFunc(bcc, func(a string) bool { return !slices.Contains(own, strings.ToLower(a)) }))
		columns["payload"], _ = json.Marshal(payload)
	}
	// Of an entry that the upload found invalid, whose address is a cell as the file has it.
	if string(columns["invalid_reason"]) == `"syntax"` && string(orNull(columns["last_attempt"])) == "null" {
		own, masked = slices.Concat(p.Addresses, p.Shared), append(masked, "email")
	}
	for _, name := range masked {
		if columns[name] == nil {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(columns[name]))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		columns[name], _ = json.Marshal(maskOthers(value, own))
	}
	return nil
}

// withoutOtherContacts removes from a recipient that other people share what is not the person's, by the rule of
// person.Store.ClearSharedRecipients.
func (p *subject) withoutOtherContacts(row json.RawMessage, columns map[string]json.RawMessage) error {
	var id struct{ ID uuid.UUID }
	if err := json.Unmarshal(row, &id); err != nil {
		return fmt.Errorf("read an id: %w", err)
	}
	if !p.SharesRecipient(id.ID) {
		return nil
	}
	var r struct {
		Email         string
		Hash          *string       `json:"cpf_cnpj_hash"`
		AddressBy     uuid.NullUUID `json:"intake_id"`
		MergedBy      uuid.NullUUID `json:"merged_by"`
		NumberBy      uuid.NullUUID `json:"cpf_cnpj_by"`
		NomeBy        uuid.NullUUID `json:"nome_by"`
		RazaoSocialBy uuid.NullUUID `json:"razao_social_by"`
	}
	if err := json.Unmarshal(row, &r); err != nil {
		return fmt.Errorf("read a recipient: %w", err)
	}
	if r.MergedBy != r.AddressBy { // a program of the previous release has written it
		r.NumberBy, r.NomeBy, r.RazaoSocialBy = r.AddressBy, r.AddressBy, r.AddressBy
	}
	ownAddress, ownNumber := slices.Contains(p.Addresses, strings.ToLower(r.Email)), r.Hash != nil && slices.Contains(p.Hashes, *r.Hash)
	own := func(by uuid.NullUUID) bool {
		return by.Valid && (ownAddress && by == r.AddressBy || ownNumber && by == r.NumberBy)
	}
	for column, own := range map[string]bool{
		"email": ownAddress, "cpf_cnpj_hash": ownNumber, "cpf_cnpj_enc": ownNumber, "nome": own(r.NomeBy), "razao_social": own(r.RazaoSocialBy),
	} {
		if !own {
			delete(columns, column)
		}
	}
	return nil
}

// maskOthers masks the addresses in a decoded JSON value. A string that equals an own address is
// kept; within a sentence it is masked too.
func maskOthers(value any, own []string) any {
	switch v := value.(type) {
	case string:
		if slices.Contains(own, strings.ToLower(v)) {
			return v
		}
		return email.MaskText(v)
	case []any:
		for i := range v {
			v[i] = maskOthers(v[i], own)
		}
	case map[string]any:
		for name := range v {
			v[name] = maskOthers(v[name], own)
		}
	}
	return value
}
