package experiment

import (
	"strings"
	"testing"
)

const two = "links: {a: {ends: [client, server]}}\n"

// accepts and refuses load the rest of a file; a refusal must hold the place and the text.
func accepts(t *testing.T, rest string) {
	t.Helper()
	if _, err := loadText(t, rest, Options{}); err != nil {
		t.Errorf("%s\n%v", rest, err)
	}
}

func refuses(t *testing.T, rest, want string) {
	t.Helper()
	_, err := loadText(t, rest, Options{})
	if err == nil {
		t.Errorf("loads without a mistake:\n%s", rest)
	} else if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "test.yaml:") {
		t.Errorf("%v\ndoes not hold %q", err, want)
	}
}

// TestCommandMetrics: a command has what the lab knows of a foreign program, and what it reads from its output.
func TestCommandMetrics(t *testing.T) {
	command := two + "apps: {tool: {type: command, from: server, to: client, client_command: iperf3, results: {%}}}\n" +
		"bounds: [{because: it must, expect: tool.^ > 0}]\n"
	file := func(results, metric string) string {
		return strings.NewReplacer("%", results, "^", metric).Replace(command)
	}
	for _, metric := range []string{"goodput_mbps", "bytes", "connect_ms", "longest_silence_ms", "min_second_mbps", "dup_acks"} {
		refuses(t, file("", metric), "bounds.0.expect")
		accepts(t, file(metric+": .end", metric))
	}
	for _, metric := range []string{"start_s", "completion_s"} {
		accepts(t, file("", metric))
		refuses(t, file(metric+": .end", metric), "the command has a metric "+metric+" already")
	}
	refuses(t, "measure: {probe: true}\n"+file("dup_acks: .end", "dup_acks"), "already")
	accepts(t, "measure: {probe: true}\n"+file("", "dup_acks"))
}
