package stripe_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"plait.dev/plait/stripe"
)

// Both ends in one program. Each needs the other's public key, and the dialer the listener's address: from a configuration file, or
// over a connection that is safe already, as plait cp does over ssh.
func Example() {
	client, server := stripe.NewKey(), stripe.NewKey()
	l, err := stripe.Listen(&stripe.Config{Key: server, Peers: []stripe.PublicKey{client.Public()}}, "localhost:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprint(conn, "hello over every link")
		conn.Close()
	}()
	conn, err := stripe.Dial(context.Background(), &stripe.Config{Key: client, Peers: []stripe.PublicKey{server.Public()}}, l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	fmt.Println(string(text), err)
	// Output: hello over every link <nil>
}

// What each link does, and why one is not used.
func ExampleConn_Stats() {
	show := func(conn *stripe.Conn) {
		for _, l := range conn.Stats() {
			fmt.Printf("%s: %.1f Mbit/s, %d paths %s\n", l.Name, (l.SendBps+l.ReceiveBps)/1e6, len(l.Paths), l.Error)
		}
	}
	_ = show
}

// Wi-Fi as it comes, LTE for at most a fifth of the bytes and 2 GB, a tethered phone only when nothing else works.
func ExampleParseLinks() {
	links, err := stripe.ParseLinks("wlan0,wwan0=0.2:cap=2GB,usb0:backup")
	fmt.Println(links["wwan0"].Share, links["wwan0"].CapBytes, links["usb0"].Backup, err)
	// Output: 0.2 2000000000 true <nil>
}
