package agent

import (
	"strings"
	"testing"
)

func TestOutOfMemory(t *testing.T) {
	log := `<6>[   12.100000] Mem-Info:
<3>[   12.345678] Out of memory: Killed process 412 (perl) total-vm:900000kB, anon-rss:800000kB, file-rss:128kB, shmem-rss:0kB, UID:0 pgtables:1700kB oom_score_adj:0
<6>[   12.400000] oom_reaper: reaped process 412 (perl), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
<3>[   13.000000] Out of memory: Killed process 77 (bgpd) total-vm:90000kB, anon-rss:80000kB, file-rss:128kB, shmem-rss:0kB, UID:101 pgtables:170kB oom_score_adj:0
`
	if err := outOfMemory([]byte(log)); err == nil || !strings.Contains(err.Error(), "killed perl, bgpd;") {
		t.Errorf("error %v", err)
	}
	if err := outOfMemory([]byte("<6>[    0.000000] Linux version 6.12\n")); err != nil {
		t.Errorf("error %v of a guest with memory", err)
	}
}
