package sessim_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"email-gateway/scripts/sessim"
)

// The ledger has the digests of what a reader would get, also of refused requests.
func TestLedger_Digests(t *testing.T) {
	t.Parallel()
	sim, client := start(t, sessim.Config{})
	content := []byte("%PDF-1.7\n\x00\xff")
	for _, to := range []string{"ana@example.com", "refused@example.com"} {
		in := input(to, to)
		in.Content.Simple.Attachments = []types.Attachment{{
			FileName: aws.String("Fatura março.pdf"), ContentType: aws.String("application/pdf"), RawContent: content,
			ContentTransferEncoding: types.AttachmentContentTransferEncodingBase64,
		}}
		if to == "refused@example.com" {
			if err := sim.Inject(sessim.Rule{Fault: "throttle", Match: sessim.Match{OutboxID: to}, Times: 1}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := client.SendEmail(t.Context(), in)
		requests := sim.Requests(to)
		if len(requests) != 1 || requests[0].Accepted != (err == nil) {
			t.Fatalf("%+v, %v", requests, err)
		}
		got := requests[0]
		if got.HTMLSHA256 != sum("<p>Olá, José & família</p>") {
			t.Errorf("html %s", got.HTMLSHA256)
		}
		if len(got.Attachments) != 1 || got.Attachments[0].SHA256 != sum(string(content)) || got.Attachments[0].FileName != "Fatura março.pdf" {
			t.Errorf("attachments %+v", got.Attachments)
		}
	}
}

func sum(content string) string {
	digest := sha256.Sum256([]byte(content))
	return hex.EncodeToString(digest[:])
}
