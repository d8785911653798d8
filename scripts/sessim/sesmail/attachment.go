package sesmail

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// The limits that SES documents for attachments.
const (
	maxFileName    = 255
	maxContentType = 78
	maxContentID   = 78
	maxDescription = 1000
)

// sentAttachment is an attachment as SendEmail's body has it.
type sentAttachment struct {
	FileName                string
	ContentType             string
	ContentId               *string
	ContentDescription      string
	ContentDisposition      string
	ContentTransferEncoding string
	RawContent              []byte // base64 in JSON
}

// Attachment is an attachment of an email. The content itself is not kept.
type Attachment struct {
	FileName         string `json:"fileName"`
	ContentType      string `json:"contentType"`
	ContentID        string `json:"contentId,omitempty"`
	Disposition      string `json:"disposition"`
	TransferEncoding string `json:"transferEncoding"`
	Size             int    `json:"size"`
	SHA256           string `json:"sha256"` // of the content as it would arrive
}

// blockedExtensions are those that SES rejects:
// https://docs.aws.amazon.com/ses/latest/dg/mime-types.html
var blockedExtensions = strings.Fields(`
	.ade .adp .app .asp .bas .bat .cer .chm .cmd .com .cpl .crt .csh .der .exe .fxp .gadget .hlp .hta .inf .ins .isp .its .js .jse .ksh
	.lib .lnk .mad .maf .mag .mam .maq .mar .mas .mat .mau .mav .maw .mda .mdb .mde .mdt .mdw .mdz .msc .msh .msh1 .msh2 .mshxml .msh1xml
	.msh2xml .msi .msp .mst .ops .pcd .pif .plg .prf .prg .ps1 .ps1xml .ps2 .ps2xml .psc1 .psc2 .reg .scf .scr .sct .shb .shs .sys .tmp
	.url .vb .vbe .vbs .vps .vsmacros .vss .vst .vsw .vxd .ws .wsc .wsf .wsh .xnk`)

// arrived is the attachment as a reader would get it. Only base64 keeps every byte.
func (a *sentAttachment) arrived() Attachment {
	content := a.RawContent
	if a.ContentTransferEncoding != "BASE64" {
		content = slices.Clone(content)
		for i := range content {
			content[i] &= 0x7F
		}
	}
	made := Attachment{
		FileName: a.FileName, ContentType: a.ContentType, Disposition: a.ContentDisposition, TransferEncoding: a.ContentTransferEncoding,
		Size: len(content), SHA256: Digest(content),
	}
	if a.ContentId != nil {
		made.ContentID = *a.ContentId
	}
	return made
}

// Digest returns the SHA-256 of a content in hexadecimal.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func (in *Input) attachmentProblem() string {
	for i := range in.Content.Simple.Attachments {
		a := &in.Content.Simple.Attachments[i]
		extension := strings.ToLower(path.Ext(a.FileName))
		switch {
		case a.FileName == "":
			return "Attachment FileName is required."
		case utf8.RuneCountInString(a.FileName) > maxFileName:
			return fmt.Sprintf("Attachment FileName is longer than %d characters.", maxFileName)
		case strings.ContainsFunc(a.FileName, isControl):
			return "Attachment FileName contains control characters."
		case slices.Contains(blockedExtensions, extension):
			return fmt.Sprintf("Attachment type '%s' is not supported.", extension)
		case len(a.RawContent) == 0:
			return "Attachment RawContent is required."
		case len(a.ContentType) > maxContentType:
			return fmt.Sprintf("Attachment ContentType is longer than %d characters.", maxContentType)
		case a.ContentId != nil && (*a.ContentId == "" || len(*a.ContentId) > maxContentID):
			return fmt.Sprintf("Attachment ContentId must have 1 to %d characters.", maxContentID)
		case len(a.ContentDescription) > maxDescription:
			return fmt.Sprintf("Attachment ContentDescription is longer than %d characters.", maxDescription)
		case !slices.Contains([]string{"", "ATTACHMENT", "INLINE"}, a.ContentDisposition):
			return "Invalid attachment ContentDisposition: '" + a.ContentDisposition + "'."
		case !slices.Contains([]string{"", "BASE64", "QUOTED_PRINTABLE", "SEVEN_BIT"}, a.ContentTransferEncoding):
			return "Invalid attachment ContentTransferEncoding: '" + a.ContentTransferEncoding + "'."
		}
	}
	return ""
}
