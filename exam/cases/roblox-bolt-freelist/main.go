// A log store: it appends small entries to a bolt file that once was large, as Consul's was in the incident.
package main

import (
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/boltdb/bolt"
)

const appendsPerSecond = 4000

func main() {
	deleted, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	db, err := bolt.Open(filepath.Join(os.Args[1], "raft.db"), 0o600, nil)
	if err != nil {
		log.Fatal(err)
	}
	db.NoSync = true // the disk has no part in this
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	if err := fill(db, deleted); err != nil {
		log.Fatal(err)
	}
	start := time.Now()
	var took []time.Duration
	for {
		due := start.Add(time.Duration(len(took)) * time.Second / appendsPerSecond)
		select {
		case <-interrupted:
			report(took, time.Since(start))
			return
		case <-time.After(time.Until(due)):
		}
		if err := put(db, uint64(len(took)), make([]byte, 512)); err != nil {
			log.Fatal(err)
		}
		took = append(took, time.Since(due))
	}
}

func report(took []time.Duration, ran time.Duration) {
	if len(took) == 0 {
		took = append(took, ran)
	}
	slices.Sort(took)
	fmt.Printf("throughput %.3f\np99 %v\n", float64(len(took))/ran.Seconds(), took[len(took)*99/100])
}

func put(db *bolt.DB, n uint64, value []byte) error {
	return db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("logs"))
		if err != nil {
			return err
		}
		return b.Put(binary.BigEndian.AppendUint64(nil, n), value)
	})
}

// fill writes pages of old entries and deletes them: bolt keeps their pages in its list of free ones.
func fill(db *bolt.DB, pages int) error {
	const batch = 20_000
	for from := 0; from < pages; from += batch {
		err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("old"))
			if err != nil {
				return err
			}
			b.FillPercent = 1
			for n := from; n < min(from+batch, pages); n++ {
				if err := b.Put(binary.BigEndian.AppendUint64(nil, uint64(n)), make([]byte, 1500)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return db.Update(func(tx *bolt.Tx) error {
		if tx.Bucket([]byte("old")) == nil {
			return nil
		}
		return tx.DeleteBucket([]byte("old"))
	})
}
