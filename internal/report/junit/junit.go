// Package junit writes results in JUnit's XML, as continuous integration servers read it.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"
)

// A Suite is a set of cases that ran together.
type Suite struct {
	Name    string
	Seconds float64
	Started time.Time
	Facts   []Fact // in the order in which they are written
	Cases   []Case
}

// A Fact is about a whole suite.
type Fact struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// A Case has at most one of Failure, Error and Skipped; a case without any of them passed.
type Case struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Failure *Message `xml:"failure,omitempty"` // what was tested is not so
	Error   *Message `xml:"error,omitempty"`   // it could not be tested
	Skipped *Message `xml:"skipped,omitempty"`
	Out     string   `xml:"system-out,omitempty"`
}

// A Message says why a case did not pass.
type Message struct {
	Text string `xml:"message,attr"`
	Type string `xml:"type,attr,omitempty"`
	Body string `xml:",chardata"`
}

// file is the shape of the XML. Counts are numbers of cases.
type (
	file struct {
		XMLName  xml.Name `xml:"testsuites"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Errors   int      `xml:"errors,attr"`
		Suites   []suite  `xml:"testsuite"`
	}
	suite struct {
		Name      string `xml:"name,attr"`
		Tests     int    `xml:"tests,attr"`
		Failures  int    `xml:"failures,attr"`
		Errors    int    `xml:"errors,attr"`
		Skipped   int    `xml:"skipped,attr"`
		Time      string `xml:"time,attr"`
		Timestamp string `xml:"timestamp,attr"`
		Facts     *facts `xml:"properties,omitempty"`
		Cases     []Case `xml:"testcase"`
	}
	facts struct {
		List []Fact `xml:"property"`
	}
)

// Write writes the suites as one document. Characters that XML cannot hold, such as escape sequences of a terminal,
// become U+FFFD. A caller that needs them visible must replace them first.
func Write(w io.Writer, suites []Suite) error {
	var doc file
	for _, s := range suites {
		out := s.file()
		doc.Suites = append(doc.Suites, out)
		doc.Tests, doc.Failures, doc.Errors = doc.Tests+out.Tests, doc.Failures+out.Failures, doc.Errors+out.Errors
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *Suite) file() suite {
	out := suite{
		Name: s.Name, Tests: len(s.Cases), Time: fmt.Sprintf("%.1f", s.Seconds),
		Timestamp: s.Started.UTC().Format("2006-01-02T15:04:05"), Cases: s.Cases,
	}
	if len(s.Facts) > 0 {
		out.Facts = &facts{s.Facts}
	}
	for _, c := range s.Cases {
		switch {
		case c.Failure != nil:
			out.Failures++
		case c.Error != nil:
			out.Errors++
		case c.Skipped != nil:
			out.Skipped++
		}
	}
	return out
}
