package draft

import (
	"fmt"
	"mime"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"email-gateway/shared/email"
	"email-gateway/shared/htmlcheck"
	"email-gateway/shared/rules"
)

// Limits of attachments. Those of the texts are limits of SES.
const (
	MaxAttachments        = 10
	maxFilename           = 255
	maxContentType        = 78
	maxContentID          = 78
	dispositionAttachment = "attachment"
	dispositionInline     = "inline"
)

// Codes of faults of attachments.
const (
	CodeTooMany           = "TOO_MANY"
	CodeBlockedExtension  = "BLOCKED_EXTENSION"  // SES rejects emails with such a file
	CodeInvalidFilename   = "INVALID_FILENAME"   // a path, a control character or the like
	CodeInvalidType       = "INVALID_TYPE"       // not a media type
	CodeInvalidContentID  = "INVALID_CONTENT_ID" // characters that do not fit a header, or used twice
	CodeUnknownContentID  = "UNKNOWN_CONTENT_ID" // html refers to an attachment that does not exist
	CodeDuplicateFilename = "DUPLICATE_FILENAME" // mail clients would hide or rename one of the files
)

// Attachment is a file of an email, given as Content or as the FileID of a stored file.
type Attachment struct {
	Filename    string  `json:"filename"`
	ContentType string  `json:"contentType"`
	Content     *string `json:"content,omitempty" hint:"base64"` // see package attachment of the api
	FileID      *string `json:"fileId,omitempty"`
	ContentID   *string `json:"contentId,omitempty"`
	Disposition *string `json:"disposition,omitempty"`
}

// blockedExtensions are the extensions that SES rejects: https://docs.aws.amazon.com/ses/latest/dg/mime-types.html
var blockedExtensions = strings.Fields(`
	ade adp app asp bas bat cer chm cmd com cpl crt csh der exe fxp gadget hlp hta inf ins isp its js jse ksh lib lnk mad maf mag mam
	maq mar mas mat mau mav maw mda mdb mde mdt mdw mdz msc msh msh1 msh2 mshxml msh1xml msh2xml msi msp mst ops pcd pif plg prf prg
	ps1 ps1xml ps2 ps2xml psc1 psc2 reg scf scr sct shb shs sys tmp url vb vbe vbs vps vsmacros vss vst vsw vxd ws wsc wsf wsh xnk`)

// contentID matches characters that are the same in a header and in a URL of html.
var contentID = regexp.MustCompile(`^[A-Za-z0-9!#$&*+/=?^_{|}~.@-]+$`)

// checkFilename returns the code and message of the fault of a file name, or "" if it is valid.
func checkFilename(name string) (code, message string) {
	bad := func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
	}
	switch {
	case name == "":
		return rules.CodeRequired, "is required"
	case utf8.RuneCountInString(name) > maxFilename:
		return rules.CodeTooLong, fmt.Sprintf("must have at most %d characters", maxFilename)
	case strings.ContainsAny(name, `/\`):
		return CodeInvalidFilename, "must be a name without a path: it contains / or \\"
	case strings.ContainsFunc(name, bad):
		return CodeInvalidFilename, "contains a control or formatting character"
	case strings.ContainsAny(name, `"<>|:*?`):
		return CodeInvalidFilename, `contains one of " < > | : * ?, which file systems reject`
	case strings.TrimSpace(name) != name || strings.Trim(name, ".") != name:
		return CodeInvalidFilename, "begins or ends with a dot or white space"
	}
	if extension := strings.ToLower(strings.TrimPrefix(path.Ext(name), ".")); slices.Contains(blockedExtensions, extension) {
		return CodeBlockedExtension, "ends in ." + extension + ", which SES does not send"
	}
	return "", ""
}

// CheckContentType returns the code and message of the fault of a media type, or "" if it is valid. An attachment without one
// gets that of its content.
func CheckContentType(text string) (code, message string) {
	switch media, _, err := mime.ParseMediaType(text); {
	case text == "":
		return "", ""
	case len(text) > maxContentType:
		return rules.CodeTooLong, fmt.Sprintf("must have at most %d characters", maxContentType)
	case err != nil || !strings.Contains(media, "/") || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }):
		return CodeInvalidType, "must be a media type such as application/pdf"
	case strings.HasPrefix(media, "multipart/") || strings.HasPrefix(media, "message/"):
		return CodeInvalidType, "must not be multipart/* or message/*: SES sends attachments in base64, which these types do not allow"
	}
	return "", ""
}

// CheckAttachments validates attachments without an email, except their contents.
func CheckAttachments(all []Attachment, f *rules.Faults) {
	d := Draft{Email: &Email{Attachments: all}, Faults: *f}
	d.checkAttachments()
	*f = d.Faults
}

// checkAttachments validates the attachments except their contents. CheckHTML checks the references of html to them.
func (d *Draft) checkAttachments() {
	all := d.Email.Attachments
	if len(all) > MaxAttachments {
		d.Faults.Add("attachments", CodeTooMany, fmt.Sprintf("must have at most %d entries, not %d", MaxAttachments, len(all)))
		return
	}
	names, ids := map[string]bool{}, map[string]bool{}
	for i := range all {
		d.checkAttachment(fmt.Sprintf("attachments[%d].", i), &all[i], names, ids)
	}
}

// CheckContentIDs checks that every content id to which html refers is one of the attachments.
func CheckContentIDs(all []Attachment, html string, f *rules.Faults) {
	ids := map[string]bool{}
	for _, a := range all {
		if a.ContentID != nil {
			ids[*a.ContentID] = true
		}
	}
	for _, id := range htmlcheck.ContentIDs(html) {
		if !ids[id] {
			f.AddEach("html", CodeUnknownContentID, fmt.Sprintf("refers to cid:%.78s, but no attachment has this contentId", id))
		}
	}
}

func (d *Draft) checkAttachment(field string, a *Attachment, names, ids map[string]bool) {
	add := func(name, code, message string) {
		if code != "" && !d.Faults.Has(field+name) {
			d.Faults.Add(field+name, code, message)
		}
	}
	code, message := checkFilename(a.Filename)
	add("filename", code, message)
	if lower := strings.ToLower(a.Filename); lower != "" && names[lower] {
		add("filename", CodeDuplicateFilename, "is the name of another attachment")
	} else {
		names[lower] = true
	}
	code, message = CheckContentType(a.ContentType)
	add("contentType", code, message)
	switch {
	case d.Faults.Has(field+"content", field+"fileId"):
	case a.Content == nil && a.FileID == nil:
		add("content", rules.CodeRequired, "is required unless fileId is given")
	case a.Content != nil && a.FileID != nil:
		add("fileId", rules.CodeNotAllowed, "must not be given together with content")
	case a.FileID != nil:
		if _, err := rules.ParseID(*a.FileID); err != nil {
			add("fileId", "INVALID_ID", err.Error())
		}
	}
	if a.ContentID != nil {
		switch id := *a.ContentID; {
		case len(id) > maxContentID:
			add("contentId", rules.CodeTooLong, fmt.Sprintf("must have at most %d characters", maxContentID))
		case !contentID.MatchString(id):
			add("contentId", CodeInvalidContentID, "must consist of letters, digits and !#$&*+/=?^_{|}~.@- without < and >")
		case ids[id]:
			add("contentId", CodeInvalidContentID, "is the contentId of another attachment")
		default:
			ids[id] = true
		}
	}
	switch {
	case a.Disposition == nil && a.ContentID != nil:
		a.Disposition = new(dispositionInline)
	case a.Disposition == nil:
		a.Disposition = new(dispositionAttachment)
	case *a.Disposition != dispositionAttachment && *a.Disposition != dispositionInline:
		add("disposition", rules.CodeNotAllowed, "must be one of: attachment, inline")
	case *a.Disposition == dispositionInline && a.ContentID == nil && !d.Faults.Has(field+"contentId"):
		add("contentId", rules.CodeRequired, "is required for an inline attachment")
	}
}

// dropBlankAttachments is dropBlank for the fields of attachments.
func (e *Email) dropBlankAttachments() {
	for i := range e.Attachments {
		a := &e.Attachments[i]
		if email.IsBlank(a.Filename) {
			a.Filename = ""
		}
		if email.IsBlank(a.ContentType) {
			a.ContentType = ""
		}
		for _, text := range []**string{&a.FileID, &a.ContentID, &a.Disposition} {
			dropBlankPointer(text)
		}
	}
}
