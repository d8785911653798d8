package mx_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// answer is the server's response to a query; silent means none.
type answer struct {
	code    dnsmessage.RCode
	mx      []string
	address string                               // of an A record
	ip6     string                               // of an AAAA record
	codes   map[dnsmessage.Type]dnsmessage.RCode // instead of code
	silent  bool
	hold    <-chan struct{} // respond when it is closed
}

// server is a DNS server under the test's control.
type server struct {
	address string

	mu      sync.Mutex
	private bool              // it does not know com, nor any name that is not in the zone
	zone    map[string]answer // by name without the last dot; other names do not exist
	asked   map[string]int    // by "TYPE name"
	working int
	limit   int // maximum number of concurrent queries
}

func newServer(t *testing.T, zone map[string]answer) *server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: conn.LocalAddr().String(), zone: zone, asked: make(map[string]int)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			packet := make([]byte, 1500)
			n, client, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			serving.Go(func() {
				if reply := s.reply(t, packet[:n]); reply != nil {
					_, _ = conn.WriteTo(reply, client)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		serving.Wait()
	})
	return s
}

func (s *server) set(name string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone[name] = a
}

// hide makes the server deny public names, or know them again.
func (s *server) hide(private bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.private = private
}

// count returns how often a query was received.
func (s *server) count(question string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[question]
}

func (s *server) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.asked {
		n += times
	}
	return n
}

func (s *server) maxAtOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

func (s *server) reply(t *testing.T, packet []byte) []byte {
	var query dnsmessage.Message
	if err := query.Unpack(packet); err != nil || len(query.Questions) != 1 {
		t.Errorf("not a query: %v", err)
		return nil
	}
	question := query.Questions[0]
	name := strings.TrimSuffix(question.Name.String(), ".")
	s.mu.Lock()
	a, exists := s.zone[name]
	top := name == "com" && !s.private
	s.asked[strings.TrimPrefix(question.Type.String(), "Type")+" "+name]++
	s.working++
	s.limit = max(s.limit, s.working)
	s.mu.Unlock()
	if a.hold != nil {
		<-a.hold
	}
	s.mu.Lock()
	s.working--
	s.mu.Unlock()
	if a.silent {
		return nil
	}
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, RCode: a.code, RecursionAvailable: true},
		Questions: query.Questions,
	}
	if !exists && !top {
		reply.RCode = dnsmessage.RCodeNameError
	}
	if code, ok := a.codes[question.Type]; ok {
		reply.RCode = code
	}
	header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 60}
	switch question.Type {
	case dnsmessage.TypeMX:
		for _, host := range a.mx {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.MXResource{MX: dnsmessage.MustNewName(host)}})
		}
	case dnsmessage.TypeNS:
		if top {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.NSResource{NS: dnsmessage.MustNewName("a.gtld-servers.net.")}})
		}
	case dnsmessage.TypeA:
		if a.address != "" {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(a.address).To4())}})
		}
	case dnsmessage.TypeAAAA:
		if a.ip6 != "" {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: [16]byte(net.ParseIP(a.ip6))}})
		}
	}
	packed, err := reply.Pack()
	if err != nil {
		t.Errorf("pack: %v", err)
		return nil
	}
	return packed
}
