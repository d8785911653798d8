package draft

import (
	"email-gateway/shared/email"
	"email-gateway/shared/rules"
)

// TaxID parses the fields cpfCnpj and cpfCnpjHash of the object whose fields begin with path. It returns the bare
// number, or "" if there is none or it is invalid. It adds a fault to f for each invalid field.
func TaxID(number, hash *string, path string, f *rules.Faults) string {
	if number == nil || f.Has(path+"cpfCnpj") {
		return ""
	}
	bare, err := email.ParseTaxID(*number)
	if err != nil {
		f.Add(path+"cpfCnpj", rules.CodeInvalidCPFCNPJ, err.Error())
		return ""
	}
	if hash != nil && email.HashTaxID(bare, nil) != *hash {
		f.Add(path+"cpfCnpjHash", rules.CodeMismatch, "is not the SHA-256 of cpfCnpj")
	}
	return bare
}
