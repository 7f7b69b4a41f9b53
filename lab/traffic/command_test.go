package traffic

import "testing"

// Lines as /proc/net shows them: a listener on 5001, a connection from 5002.
const (
	tableTCP6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: B80D0120000001000000000001000000:1389 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000
   1: B80D0120000001000000000001000000:138A B80D0120000001000000000002000000:9C40 01 00000000:00000000 00:00000000
`
	tableSCTP = ` ENDPT     SOCK   STY SST HBKT LPORT   UID INODE LADDRS
ffff88017e0a0200 ffff880299f7fa00 2   10  29   5003     200 299689357 10.0.0.102
`
)

func TestListening(t *testing.T) {
	for _, test := range []struct {
		table string
		port  uint16
		want  bool
	}{
		{tableTCP6, 5001, true}, {tableTCP6, 5002, false}, {tableTCP6, 5003, false}, {tableSCTP, 5003, true}, {tableSCTP, 5001, false}, {"", 5001, false},
	} {
		if got := listening(test.table, test.port); got != test.want {
			t.Errorf("port %d: %v, want %v in\n%s", test.port, got, test.want, test.table)
		}
	}
}

func TestPortMention(t *testing.T) {
	for text, want := range map[string]bool{"iperf3 -s -p $PORT": true, "nc -l ${PORT}": true, "serve $PORTAL": false, "sleep 9": false} {
		if got := portMention.MatchString(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
