package sessim

import "email-gateway/scripts/sessim/sesmail"

// Mail is one accepted email.
type Mail = sesmail.Mail

// Pair is a header or a tag of an email.
type Pair = sesmail.Pair

// Attachment is an attachment of an email.
type Attachment = sesmail.Attachment
