package ses_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"email-gateway/worker/internal/provider/ses"
)

// benchmarkConcurrency is one connection per goroutine, as in the worker.
const benchmarkConcurrency = 32

func instant(b *testing.B) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"MessageId":"0100019a-0000"}`)
	}))
	b.Cleanup(server.Close)
	return server.URL
}

var benchmarkHTML = "<p>" + strings.Repeat("Sua fatura está disponível. ", 180) + "</p>" // 5 KB

// BenchmarkSend measures the whole adapter against a server that answers at once.
func BenchmarkSend(b *testing.B) {
	s, err := ses.New(b.Context(), ses.Config{Region: "us-east-1", Endpoint: instant(b), Concurrency: benchmarkConcurrency})
	if err != nil {
		b.Fatal(err)
	}
	m := message()
	m.HTML = benchmarkHTML
	b.ReportAllocs()
	b.SetParallelism(benchmarkConcurrency / 2)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := s.Send(b.Context(), m); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkBareClient measures the SDK alone, as the baseline for Send.
func BenchmarkBareClient(b *testing.B) {
	client := sesv2.New(sesv2.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(instant(b)), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("bench", "bench", ""),
		HTTPClient:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchmarkConcurrency}},
	})
	content := func(s string) *types.Content {
		return &types.Content{Data: aws.String(s), Charset: aws.String("UTF-8")}
	}
	input := &sesv2.SendEmailInput{
		FromEmailAddress: aws.String("pedidos@loja.example"),
		Destination:      &types.Destination{ToAddresses: []string{"maria@cliente.example"}},
		Content: &types.EmailContent{Simple: &types.Message{
			Subject: content("Olá"), Body: &types.Body{Html: content(benchmarkHTML)},
		}},
	}
	b.ReportAllocs()
	b.SetParallelism(benchmarkConcurrency / 2)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := client.SendEmail(b.Context(), input); err != nil {
				b.Error(err)
			}
		}
	})
}
