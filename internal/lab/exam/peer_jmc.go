package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/perfdoctor/perfdoctor/internal/host/clock"
	"github.com/perfdoctor/perfdoctor/internal/lab/scenario"
)

const peerJMC = "jmc"

// jmc applies the rules of JDK Mission Control to a flight recording.
type jmc struct{ path string }

// jmcVersion is the version of the rules.
const jmcVersion = "9.1.1"

// jmcRules are the rules, and this project's program that prints their results.
var jmcRules = Fetch{
	Name:  "rules",
	Maven: []string{"org.openjdk.jmc:flightrecorder.rules.jdk:" + jmcVersion},
	Files: []string{"Rules.java"},
}

func (j *jmc) name() string { return peerJMC }

func (j *jmc) takes(c *Case) bool { return c.Runtime == "java" }

func (j *jmc) prepare(ctx context.Context, e *exam) (version string, err error) {
	j.path, err = e.peerCase(peerJMC).fetch(ctx, e.cache, &jmcRules, e.say)
	return jmcVersion, err
}

func (j *jmc) settle(context.Context) error { return nil }

const jmcRecording = "window.jfr"

// watch records with the JDK's settings for short recordings.
func (j *jmc) watch(ctx context.Context, _ *Case, r scenario.Running, dir string) error {
	jvm, err := jvmOf(r.PID)
	if err != nil {
		return err
	}
	if _, err := command(ctx, dir, nil, "jcmd", jvm, "JFR.start", "name=window", "settings=profile"); err != nil {
		return err
	}
	if err := clock.Sleep(ctx, window); err != nil {
		return err
	}
	file := filepath.Join(dir, jmcRecording)
	_, err = command(ctx, dir, nil, "jcmd", jvm, "JFR.stop", "name=window", "filename="+file)
	return err
}

func (j *jmc) read(ctx context.Context, dir string) ([]finding, error) {
	classes := filepath.Join(j.path, "classes") + ":" + filepath.Join(j.path, "lib", "*")
	said, err := command(ctx, dir, nil, "java", "-cp", classes, "Rules", jmcRecording)
	if err != nil {
		return nil, err
	}
	return jmcFindings(said)
}

// jmcFindings returns the results of severity INFO or WARNING from the lines that Rules.java prints.
func jmcFindings(said string) ([]finding, error) {
	var findings []finding
	for line := range strings.Lines(said) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		const fields = 6
		if len(field) != fields {
			continue // printed by libraries
		}
		score, err := strconv.ParseFloat(field[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: score: %w", field[0], err)
		}
		if field[1] != "INFO" && field[1] != "WARNING" {
			continue
		}
		findings = append(findings, finding{ID: field[0], Score: score, Text: joined(field[3:])})
	}
	return findings, nil
}

// joined returns the non-empty texts as sentences of one text.
func joined(texts []string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), " ")
}
