package push

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime/multipart"
	"net/url"
	"strconv"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	logs "go.opentelemetry.io/proto/slim/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"github.com/perfdoctor/perfdoctor/internal/check"
	"github.com/perfdoctor/perfdoctor/internal/daemon/episode"
	"github.com/perfdoctor/perfdoctor/internal/recording"
	"github.com/perfdoctor/perfdoctor/internal/recording/stacks"
)

// An event is the beginning or the end of a finding.
type event struct {
	episode.Episode
	state string // began or ended
	known time.Time
}

// at is when it happened: a finding ends with the last window that had it.
func (e event) at() time.Time {
	if e.state == "ended" {
		return e.End
	}
	return e.Begin
}

// logs writes an OTLP/HTTP request. The messages are OpenTelemetry's own, in the edition without gRPC, which adds 50
// KB to the program; the exporter of its SDK adds 5.6 MB and a second queue.
func (p *Pusher) logs(e event) (body []byte, contentType string, err error) {
	f := e.Finding
	attributes := []*common.KeyValue{
		text("perfdoctor.state", e.state), text("perfdoctor.check", f.Check),
		text("perfdoctor.stage", f.Stage.String()),
		text("perfdoctor.severity", f.Severity.String()), text("perfdoctor.confidence", f.Confidence.String()),
		text("perfdoctor.subject", f.Subject.String()), text("perfdoctor.target", e.Target),
		text("perfdoctor.began", e.Begin.UTC().Format(time.RFC3339)),
	}
	if len(f.Remedies) > 0 {
		remedy := strings.TrimSpace(f.Remedies[0].Action + " " + string(f.Remedies[0].Command))
		attributes = append(attributes, text("perfdoctor.remedy", remedy))
	}
	record := &logs.LogRecord{
		TimeUnixNano: uint64(e.at().UnixNano()), ObservedTimeUnixNano: uint64(e.known.UnixNano()),
		SeverityNumber: number(e), SeverityText: f.Severity.String(), Attributes: attributes,
		EventName: "perfdoctor.finding." + e.state,
		Body:      &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: valid(f.Summary)}},
	}
	body, err = proto.Marshal(&collector.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			text("service.name", "perfdoctor"), text("service.version", p.o.Version), text("host.name", p.o.Host),
		}},
		ScopeLogs: []*logs.ScopeLogs{{
			Scope:      &common.InstrumentationScope{Name: "perfdoctor", Version: valid(p.o.Version)},
			LogRecords: []*logs.LogRecord{record},
		}},
	}}})
	return body, "application/x-protobuf", err
}

// number is OpenTelemetry's number of a severity. The end of a finding is no reason to wake anybody.
func number(e event) logs.SeverityNumber {
	switch {
	case e.state == "ended":
		return logs.SeverityNumber_SEVERITY_NUMBER_INFO
	case e.Finding.Severity >= check.Critical:
		return logs.SeverityNumber_SEVERITY_NUMBER_ERROR
	}
	return logs.SeverityNumber_SEVERITY_NUMBER_WARN
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{
		StringValue: valid(value),
	}}}
}

// valid makes a string valid for protobuf: a subject may hold a name that a process gave itself.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// A cloudEvent is an event in the JSON format of CloudEvents 1.0. It is written by hand because it is eight fields, and
// the event package of its SDK adds 2.7 MB to the program; the tests read it with that package.
type cloudEvent struct {
	SpecVersion string    `json:"specversion"`
	ID          string    `json:"id"` // the same for each try, so that a receiver can recognize a repetition
	Source      string    `json:"source"`
	Type        string    `json:"type"`
	Subject     string    `json:"subject"`
	Time        time.Time `json:"time"`
	ContentType string    `json:"datacontenttype"`
	Data        eventData `json:"data"`
}

// eventData is what a webhook receives.
type eventData struct {
	State   string        `json:"state"`
	Host    string        `json:"host"`
	Target  string        `json:"target"`
	Began   time.Time     `json:"began"`
	Last    time.Time     `json:"last"` // end of the last window that had it
	Finding check.Finding `json:"finding"`
}

// eventType is the prefix of the types of events.
const eventType = "io.github.perfdoctor.finding."

func (p *Pusher) cloudEvent(e event) (body []byte, contentType string, err error) {
	id := sha256.Sum256(
		[]byte(strings.Join([]string{p.o.Host, e.Target, e.Finding.ID(), e.state, e.Begin.UTC().String()}, "\x00")))
	body, err = json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: hex.EncodeToString(id[:16]), Source: "/perfdoctor/" + url.PathEscape(p.o.Host),
		Type:    eventType + e.state,
		Subject: e.Finding.ID(), Time: e.at().UTC(), ContentType: "application/json",
		Data: eventData{e.state, p.o.Host, e.Target, e.Begin.UTC(), e.End.UTC(), e.Finding},
	})
	return body, "application/cloudevents+json; charset=utf-8", err
}

// pyroscope makes a message of a profile for Pyroscope's POST /ingest: pprof in a form, with the types of its values,
// since a server drops types that it does not know.
func (p *Pusher) pyroscope(target string, rec *recording.Recording, prof *stacks.Profile) message {
	from := rec.Meta.Started
	until := from.Add(time.Duration(rec.Meta.Duration * float64(time.Second)))
	return message{
		query: url.Values{
			"name": {"perfdoctor." + string(prof.Event) + "{host=" + label(p.o.Host) + ",target=" + label(target) +
				"}"},
			"format": {"pprof"}, "spyName": {"perfdoctor"},
			"from":  {strconv.FormatInt(from.Unix(), 10)},
			"until": {strconv.FormatInt(max(until.Unix(), from.Unix()+1), 10)},
		},
		body: func() ([]byte, string, error) { return form(prof) },
	}
}

// label turns a name into a label value: the syntax has no quotes.
func label(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`{},="`, r) || r <= ' ' {
			return '_'
		}
		return r
	}, valid(s))
}

// A sampleType says what a value of a profile is, in Pyroscope's words.
type sampleType struct {
	Units   string `json:"units"`
	Display string `json:"display-name"`
	Sampled bool   `json:"sampled"`
}

func form(prof *stacks.Profile) (body []byte, contentType string, err error) {
	unit := "nanoseconds"
	if prof.Event == stacks.Alloc {
		unit = "bytes"
	}
	types, err := json.Marshal(map[string]sampleType{
		"samples":        {"samples", string(prof.Event) + "_samples", true},
		prof.ValueType(): {unit, string(prof.Event), true},
	})
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("profile", "profile.pprof")
	if err == nil {
		err = prof.WritePprof(part)
	}
	if err != nil {
		return nil, "", err
	}
	if part, err = w.CreateFormFile("sample_type_config", "sample_type_config.json"); err != nil {
		return nil, "", err
	}
	if _, err = part.Write(types); err != nil {
		return nil, "", err
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	return b.Bytes(), w.FormDataContentType(), nil
}
