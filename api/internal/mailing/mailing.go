// Package mailing ingests mailings: it reads the multipart form, streams the CSV file into the
// blob store, validates its rows and renders test emails. Package mailings uses it, validates the
// form fields, and commits the result with shared/store.
//
// A file is read twice. During the upload it is inspected, hashed, encrypted and stored, without
// an open transaction, however slow the client is. If the request is valid, the file is read
// back, and each row becomes an entry or a validation result within the transaction that accepts
// the mailing. Neither pass holds more than one row in memory, and a row costs three allocations:
// its texts, its token and its id.
package mailing

import "email-gateway/shared/email"

// Limits of a mailing.
const (
	MaxFile    = 512 << 20 // bytes of the CSV file
	MaxName    = 255       // characters of the file name or of the name field
	maxSubject = 4 << 10   // bytes of the subject template
	maxBody    = email.MaxHTML
)

// Codes of validation results of rows. They are stored in mailing_rejects and returned to
// tenants: add new ones, never rename.
const (
	CodeMissingEmail  = "MISSING_EMAIL"
	CodeInvalidEmail  = email.CodeInvalidEmail
	CodeInvalidTaxID  = "INVALID_CPF_CNPJ"
	CodeTooLong       = "TOO_LONG"
	CodeBadCharacter  = "BAD_CHARACTER"
	CodeInvalidLink   = "INVALID_LINK"
	CodeSubjectLength = "SUBJECT_LENGTH"
	CodeBodyTooLarge  = "BODY_TOO_LARGE"
	CodeEmptyBody     = "EMPTY_BODY"
)

// Reasons for which an entry is INVALID. Such a row is still an entry: it has an address, and the
// mailing's list of entries shows it.
const (
	invalidSyntax     = "syntax"
	invalidDisposable = "disposable"
)
