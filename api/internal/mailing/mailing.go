// Package mailing takes in mailings: it reads the multipart form, streams the CSV file
// into the blob store, judges its rows one by one and renders the emails of a test.
// Package httpapi asks it to, decides what the fields of the form have to be, and has
// shared/store commit the outcome.
//
// A file passes twice. While it is uploaded it is inspected, hashed, encrypted and
// stored, and no transaction is open, however slow the client is. When everything about
// the request is right it is read back, and each row becomes an entry or a verdict
// inside the one transaction that accepts the mailing. Neither pass holds more of the
// file than a row, and a row costs three allocations: its texts, its token and its id.
package mailing

import "email-gateway/shared/email"

// Limits of a mailing.
const (
	MaxFile    = 512 << 20 // bytes of the CSV file
	MaxTests   = 10        // addresses that get the first row's email at once
	MaxName    = 255       // characters of the file's name, or of the name instead of it
	maxSubject = 4 << 10   // bytes of the subject's template
	maxBody    = email.MaxHTML
)

// Codes of what can be wrong with a row. They stand in mailing_rejects and in the
// verdicts that a tenant downloads: add new ones, never rename.
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

// Reasons for which an entry is INVALID. It is an entry nevertheless: it has an
// address, and the mailing's list of entries shows it.
const (
	invalidSyntax     = "syntax"
	invalidDisposable = "disposable"
)
