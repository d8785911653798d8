// Package stage is what the chaos run plays on: a whole gateway of its own. Postgres,
// Redis and RabbitMQ are private instances, the programs are real processes, SES is the
// simulator, and between every two of them there is a link that can be cut, delayed and
// poisoned. The chaos run uses it, and the neighbour suite, which needs no links.
package stage

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "github.com/lib/pq" // the driver of Stage.Database
	"github.com/redis/go-redis/v9"

	"email-gateway/scripts/local"
	"email-gateway/scripts/sessim"
)

// Config says what the stage is made of.
type Config struct {
	// Root is the checkout, Dir a directory of the stage's own: data, logs, programs.
	Root, Dir string
	// Overlay is for go build when it builds the programs: a fault that is planted in them.
	Overlay string
	// Single starts one program of each kind, without links between it and what it depends on,
	// and publishes no events of SES.
	Single bool
	// SendRate is what SES allows, in recipients per second; 0 = the constant of that name.
	SendRate float64
	// Env is set for every program, on top of the stage's own variables. An empty value leaves
	// the program its default.
	Env map[string]string
}

// Stage is a running gateway.
type Stage struct {
	Postgres, Redis, RabbitMQ *local.Service

	// Programs are all processes of the gateway, Links all ways between two parts.
	Programs []*Program
	Links    []*Link
	Mail     *Mail
	Database *sql.DB // straight to Postgres, past every link

	cfg       Config
	balancer  *balancer
	env       map[string]string // of all programs; each has the addresses of its own links on top
	supervise context.Context
	end       context.CancelFunc
}

// Open builds the programs and starts everything. What it started is ended by Close,
// also after an error.
func Open(ctx context.Context, cfg Config) (*Stage, error) {
	s := &Stage{cfg: cfg}
	s.supervise, s.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stage) open(ctx context.Context) error {
	built := make(chan error, 1)
	go func() { built <- local.Build(ctx, s.cfg.Root, s.bin(""), "-overlay="+s.cfg.Overlay) }()
	err := errors.Join(s.startServices(ctx), <-built)
	if err != nil {
		return err
	}
	// Faults hold locks for as long as they last; Postgres ends idle transactions of the programs.
	if s.Database, err = sql.Open("postgres", s.Postgres.URL+"&idle_in_transaction_session_timeout=0"); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	s.Database.SetMaxIdleConns(0) // one that stood by may be dead: Postgres is killed all the time
	if s.Mail, err = newMail(cmp.Or(s.cfg.SendRate, SendRate)); err != nil {
		return err
	}
	if err := s.run(ctx, "migrate", "up"); err != nil {
		return err
	}
	return s.startPrograms(ctx)
}

func (s *Stage) startServices(ctx context.Context) error {
	dir := filepath.Join(s.cfg.Dir, "services")
	s.Postgres, s.Redis, s.RabbitMQ = local.NewService(s.cfg.Root, dir, Postgres), local.NewService(s.cfg.Root, dir, Redis),
		local.NewService(s.cfg.Root, dir, RabbitMQ)
	var starting sync.WaitGroup
	errs := make([]error, 3)
	for i, service := range []*local.Service{s.Postgres, s.Redis, s.RabbitMQ} {
		starting.Go(func() { errs[i] = service.Open(ctx) })
	}
	starting.Wait()
	return errors.Join(errs...)
}

func (s *Stage) startPrograms(ctx context.Context) error {
	s.env = map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "chaos", "AWS_SECRET_ACCESS_KEY": "chaos",
		"CPF_CNPJ_KEYS": "chaos:" + secret(), "UNSUBSCRIBE_KEY": secret(),
		"STORAGE_URL": "file://" + filepath.Join(s.cfg.Dir, "storage"), "MX_RESOLVER": "off",
		"PUBLIC_URL": "https://mail.chaos.example", "LOG_LEVEL": "warn",
		"QUOTA_RUNNING_MAILINGS": "10000", // a round may upload more than 20 in no time
		"EMAIL_TTL":              "5m", "EMAIL_BACKOFF": backoff, "WORKER_CONCURRENCY": fmt.Sprint(Concurrency), "SES_MAX_SEND_RATE": fmt.Sprint(SendRate),
		// What waits for a crash to be noticed waits for seconds, so that a run of a
		// minute sees it: these are the settings, not the code.
		"MAILING_RECOVERY_INTERVAL": "5s", "MAILING_STALE_AFTER": "10s",
		"RECIPIENTS_RETRY_TTL_MS": "2000",
		"SES_CONFIGURATION_SET":   "chaos", "SES_FEEDBACK_WINDOW": FeedbackWindow.String(),
		"SES_EVENTS_TOPICS": topic, "SES_EVENTS_TRUSTED_URL": "http://" + s.Mail.Addr,
	}
	maps.Copy(s.env, s.cfg.Env)
	proxies := newProxies()
	for _, role := range roles {
		if s.cfg.Single {
			role.count = 1
		}
		for n := range role.count {
			if err := s.addProgram(proxies, role.kind, n+1, role.dependencies); err != nil {
				return err
			}
		}
	}
	for _, p := range s.Programs {
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	if s.cfg.Single {
		return nil
	}
	var err error
	if s.balancer, err = newBalancer(s.APIs()); err != nil { // over links, as everything
		return err
	}
	return s.Mail.publish(s.balancer.url)
}

// addProgram makes the program and its links.
func (s *Stage) addProgram(proxies *proxies, kind string, number int, dependencies []string) error {
	addr, err := local.FreeAddress()
	if err != nil {
		return err
	}
	p := newProgram(s, fmt.Sprintf("%s-%d", kind, number), kind, addr)
	if kind == API {
		if p.Metrics, err = local.FreeAddress(); err != nil {
			return err
		}
		p.env["METRICS_ADDR"] = p.Metrics
	}
	for _, d := range dependencies {
		if s.cfg.Single {
			p.env[variables[d]] = s.urlThrough(d, s.upstream(d))
			continue
		}
		link, err := proxies.add(p.Name+":"+d, d, s.upstream(d))
		if err != nil {
			return err
		}
		s.Links = append(s.Links, link)
		p.env[variables[d]] = s.urlThrough(d, link.Addr)
	}
	if kind == API {
		p.env[variables[RabbitMQ]] = s.RabbitMQ.URL // whether there is one; it never connects
	}
	if kind == API && !s.cfg.Single {
		link, err := proxies.add("load:"+p.Name, API, addr)
		if err != nil {
			return err
		}
		s.Links = append(s.Links, link)
	}
	s.Programs = append(s.Programs, p)
	return nil
}

// upstream is the dependency's own address.
func (s *Stage) upstream(dependency string) string {
	if dependency == SES {
		return s.Mail.Addr
	}
	return s.Service(dependency).Addr
}

// urlThrough is the dependency's URL with another address.
func (s *Stage) urlThrough(dependency, addr string) string {
	if dependency == SES {
		return "http://" + addr
	}
	return s.Service(dependency).Through(addr)
}

// Service returns Postgres, Redis or RabbitMQ by its name; nil if it is none.
func (s *Stage) Service(name string) *local.Service {
	switch name {
	case Postgres:
		return s.Postgres
	case Redis:
		return s.Redis
	case RabbitMQ:
		return s.RabbitMQ
	}
	return nil
}

// Program returns a program by its name; nil if there is none.
func (s *Stage) Program(name string) *Program {
	for _, p := range s.Programs {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// Link returns a link by its name; nil if there is none.
func (s *Stage) Link(name string) *Link {
	for _, l := range s.Links {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// APIs are the URLs at which the load reaches the apis.
func (s *Stage) APIs() []string {
	var urls []string
	if s.cfg.Single {
		return []string{"http://" + s.Program(ProgramNames(API)[0]).Addr}
	}
	for _, l := range s.Links {
		if l.Dependency == API {
			urls = append(urls, "http://"+l.Addr)
		}
	}
	return urls
}

// Close ends everything and removes the services' data; logs stay.
func (s *Stage) Close() error {
	var ending sync.WaitGroup
	for _, p := range s.Programs {
		ending.Go(p.end)
	}
	ending.Wait()
	s.end()
	for _, l := range s.Links {
		l.close()
	}
	var errs []error
	if s.Mail != nil {
		errs = append(errs, s.Mail.close())
	}
	if s.balancer != nil {
		errs = append(errs, s.balancer.close())
	}
	if s.Database != nil {
		errs = append(errs, s.Database.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var destroying sync.WaitGroup
	destroyed := make([]error, 3)
	for i, service := range []*local.Service{s.Postgres, s.Redis, s.RabbitMQ} {
		if service != nil {
			destroying.Go(func() { destroyed[i] = service.Destroy(ctx) })
		}
	}
	destroying.Wait()
	return errors.Join(append(errs, destroyed...)...)
}

func secret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// environ is what a program is started with.
func (s *Stage) environ(own map[string]string) []string {
	all := maps.Clone(s.env)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, own)
	list := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for name, value := range all {
		list = append(list, name+"="+value)
	}
	return list
}

// backoff is the real table's shape at a size that lets five tries end within a run.
const backoff = "300ms,700ms,1500ms,3s,5s"

// Concurrency is how many emails each worker has in its hands at once.
const Concurrency = 32

// OpenRedis connects straight to Redis, past every link. A command is tried once.
func (s *Stage) OpenRedis() (*redis.Client, error) {
	o, err := redis.ParseURL(s.Redis.URL)
	if err != nil {
		return nil, fmt.Errorf("read the URL of redis: %w", err)
	}
	o.MaxRetries, o.PoolSize = -1, 3
	return redis.NewClient(o), nil
}

// SendRate is what SES allows, in recipients per second: about what two cores can send while
// they run everything else. The window of a queue on Redis is one second of it.
const SendRate = 500

// Ledger returns every request that SES got, oldest first.
func (s *Stage) Ledger() []sessim.Entry { return s.Mail.Simulator.Ledger() }
